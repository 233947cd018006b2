// SPDX-License-Identifier: Apache-2.0
#include "doctor/probe.h"

#include <algorithm>
#include <array>
#include <string>

#include "crossdevice/core/environment.h"

#include "doctor/probes.h"

namespace crossdevice::doctor {
namespace {

constexpr const char* kReadSystem =
    "see whether /proc and /sys can be read here: a container may hide them";
constexpr const char* kGpusAreIll =
    "nvidia-smi, and lines with NVRM or Xid in dmesg, say what ails driver and GPUs; "
    "CUDA_VISIBLE_DEVICES=0 (1, ...) shows which one it is, and empty it goes without GPUs";

constexpr const char* kCopiesAreIll =
    "between host devices: memory is short (free -h), or ill (dmesg); of GPUs nvidia-smi, and "
    "lines with NVRM or Xid in dmesg, say what ails them";

constexpr const char* kHostsAreIll =
    "CROSSDEVICE_NUM_THREADS=1 shows whether it is the threads: ulimit -u, and in a container "
    "--pids-limit, must admit them";

constexpr std::array kProbes{
    Probe{"machine", [] { return probe_machine(System()); }, "processor", kReadSystem},
    Probe{"limits", [] { return probe_limits(System()); }, "open files", kReadSystem, Need::ALWAYS,
          Settings::NOT_READ},
    Probe{"environment", probe_environment, "environment",
          "env | grep CROSSDEVICE_ shows what is set: unset what is not needed", Need::ALWAYS,
          Settings::JUDGED},
    Probe{"launcher", probe_launcher, "launcher",
          "CROSSDEVICE_LAUNCHER=none looks at no launcher; or say it yourself: CROSSDEVICE_RANK, "
          "CROSSDEVICE_NUM_WORKERS and CROSSDEVICE_CHIEF_ADDRESS",
          Need::ALWAYS, Settings::NOT_READ},
    Probe{"shared-memory", [] { return probe_shared_memory(System()); }, "shared memory",
          "free -h and ulimit -v show whether memory is short, docker run --security-opt "
          "seccomp=unconfined whether a container's profile refuses it",
          Need::ALWAYS, Settings::NOT_READ},
    Probe{"foreign-memory", [] { return probe_foreign_memory(System()); }, "process_vm_readv",
          "nothing: nobody needs it", Need::WHEN_ASKED_FOR, Settings::NOT_READ},
    Probe{"network", [] { return probe_network(run::own_addresses()); }, "network",
          "ip addr shows whether the loopback is up and which interfaces have addresses",
          Need::ALWAYS, Settings::NOT_READ},
    Probe{"devices", [] { return probe_devices(System()); }, "GPUs", kGpusAreIll},
    Probe{"nccl", probe_nccl, "NCCL",
          "set CROSSDEVICE_NCCL_LIBRARY to another libnccl.so.2, of version 2.14 or newer; ldd "
          "shows what the file itself needs",
          Need::WHERE_IT_WORKS},
    Probe{"ucx", [] { return probe_ucx(System()); }, "UCX",
          "leave CROSSDEVICE_TRANSPORT unset, so that messages go over TCP; ucx_info -d shows what "
          "UCX itself makes of this machine",
          Need::WHEN_ASKED_FOR, Settings::NOT_READ},
    Probe{"copies", probe_copies, "copies", kCopiesAreIll},
    Probe{"all-reduce-hosts", probe_host_all_reduce, "all-reduce, one process", kHostsAreIll},
    Probe{"all-reduce-batch", probe_batch_all_reduce, "all-reduce, batch", kHostsAreIll},
    Probe{"all-reduce-gpus", probe_gpu_all_reduce, "all-reduce, GPUs", kGpusAreIll},
    Probe{
        "all-reduce-nccl", probe_nccl_all_reduce, "all-reduce, NCCL",
        "NCCL_DEBUG=INFO says what NCCL was about to do; NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 "
        "shows whether it is the way between GPUs; ReductionToOneDevice and "
        "HierarchicalCopyAllReduce go without NCCL",
        Need::WHERE_IT_WORKS},
    Probe{
        "all-reduce-nccl-workers", probe_nccl_workers, "all-reduce, NCCL workers",
        "NCCL_DEBUG=INFO says what NCCL was about to do; NCCL_SHM_DISABLE=1 or NCCL_P2P_DISABLE=1 "
        "shows whether it is the way between processes: in a container they need /dev/shm (docker "
        "run --shm-size) and a common --ipc; CommunicationImplementation::RING goes through the "
        "hosts",
        Need::WHERE_IT_WORKS},
    Probe{"all-reduce-shared-memory", probe_shared_memory_workers, "all-reduce, shared memory",
          "workers meet at 127.0.0.1: the loopback must be up and no firewall in the way (iptables "
          "-S, nft list ruleset); they share memory files: free -h and, in a container, its limit "
          "must leave room; CROSSDEVICE_LOG_LEVEL=info says how far they came"},
    Probe{"all-reduce-own-memory", probe_own_memory_workers, "all-reduce, own memory",
          "as of all-reduce-shared-memory; only memory that Tensor did not give takes this way"},
    Probe{"all-reduce-tcp", probe_tcp_workers, "all-reduce, TCP",
          "workers connect to each other at this machine's own addresses, on any port: no firewall "
          "may be in the way (iptables -S, nft list ruleset); CROSSDEVICE_SOCKET_IFNAME picks the "
          "interface; CROSSDEVICE_LOG_LEVEL=info says how far they came"},
    Probe{"all-reduce-tls", probe_tls_workers, "all-reduce, TCP with TLS",
          "CROSSDEVICE_TLS=0 goes without; it needs OpenSSL's TLS 1.3 with TLS_AES_128_GCM_SHA256, "
          "which a system-wide policy (openssl.cnf) may forbid: openssl ciphers -s -tls1_3"},
    Probe{"all-reduce-two-levels", probe_two_level_workers, "all-reduce, two levels",
          "it takes the ways of all-reduce-shared-memory and all-reduce-tcp: their lines say what "
          "to do; --probe all-reduce-two-levels shows what these four workers said"},
    Probe{
        "all-reduce-ucx", [] { return probe_ucx_workers(System()); }, "all-reduce, UCX",
        "leave CROSSDEVICE_TRANSPORT unset, so that messages go over TCP; UCX_LOG_LEVEL=info says "
        "what UCX was about to do, UCX_TLS what it may use",
        Need::WHEN_ASKED_FOR},
};

bool is_asked_for(const Probe& probe) {
  const std::string_view name = probe.name;
  const bool is_ucx = name == "ucx" || name == "all-reduce-ucx";
  return is_ucx && process_environment()("CROSSDEVICE_TRANSPORT").value_or("") == "ucx";
}

}  // namespace

std::span<const Probe> all_probes() { return kProbes; }

const Probe* find_probe(std::string_view name) {
  const auto* const found = std::find_if(kProbes.begin(), kProbes.end(),
                                         [&](const Probe& each) { return name == each.name; });
  return found == kProbes.end() ? nullptr : found;
}

Findings skipped(const Probe& probe) {
  const auto* const judge = std::find_if(kProbes.begin(), kProbes.end(), [](const Probe& each) {
    return each.settings == Settings::JUDGED;
  });
  return {{.name = probe.finding,
           .status = Status::SKIPPED,
           .text = std::string("not run: see ") + judge->finding}};
}

Findings weighed(const Probe& probe, End end, Findings findings) {
  const bool is_dispensable = (probe.need == Need::WHEN_ASKED_FOR && !is_asked_for(probe)) ||
                              (probe.need == Need::WHERE_IT_WORKS && end == End::REFUSAL);
  for (Finding& finding : findings) {
    if (is_dispensable && finding.status == Status::FAILURE) finding.status = Status::SHORTFALL;
  }
  return findings;
}

}  // namespace crossdevice::doctor
