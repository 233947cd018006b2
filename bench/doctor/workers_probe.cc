// SPDX-License-Identifier: Apache-2.0
/// All-reduces among workers on this machine, started as crossdevice-run starts them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/comm/ucx_transport.h"
#include "crossdevice/core/environment.h"

#include "doctor/gpus.h"
#include "doctor/probes.h"
#include "doctor/refusal.h"
#include "doctor/system.h"
#include "doctor/worker.h"
#include "run/job.h"

namespace crossdevice::doctor {
namespace {

/// What is written to standard output while it lives.
class CapturedOutput {
 public:
  CapturedOutput()
      : file_(::memfd_create("crossdevice-doctor", MFD_CLOEXEC)), output_(::dup(STDOUT_FILENO)) {
    if (file_ < 0 || output_ < 0 || ::dup2(file_, STDOUT_FILENO) < 0) {
      throw std::system_error(errno, std::generic_category(), "a file for the workers' output");
    }
  }
  ~CapturedOutput() {
    ::dup2(output_, STDOUT_FILENO);
    ::close(output_);
    ::close(file_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  [[nodiscard]] std::string text() const {
    std::string all;
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t count =
          ::pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(all.size()));
      if (count <= 0) return all;
      all.append(bytes.data(), static_cast<std::size_t>(count));
    }
  }

 private:
  int file_;
  int output_;
};

/// `variables`: "NAME=VALUE", for all workers.
///
/// Errors   std::runtime_error: one of them has failed; Refused: with kExitRefused. Where one has crashed this process ends by the same signal.
Findings among_workers(const std::string& path, std::vector<std::string> command_head,
                       std::vector<std::string> variables, int num_workers = 2) {
  run::Arguments job;
  job.num_workers = num_workers;
  job.rank_prefix = run::RankPrefix::ERROR_OUTPUT;
  job.grace = std::chrono::seconds(1);
  job.exported = std::move(variables);
  job.exported.emplace_back("CROSSDEVICE_TRACE=");  // a timeline that is asked for is the program's
  job.exported.push_back(fmt::format("CROSSDEVICE_DEFAULT_TIMEOUT={}", kWorkerSeconds));
  job.command = std::move(command_head);
  job.command.insert(job.command.end(),
                     {std::filesystem::read_symlink("/proc/self/exe").string(), "--worker", path});
  const CapturedOutput output;
  const int code = run::run_job(job);
  // A worker's crash is the probe's, as it weighs more than an error that the library reports.
  constexpr int kBeforeSignals = 128;
  if (code > kBeforeSignals) {
    std::signal(code - kBeforeSignals, SIG_DFL);
    std::raise(code - kBeforeSignals);
  }
  if (code == kExitRefused) throw Refused("the workers were refused");
  if (code != 0) throw std::runtime_error(fmt::format("the workers ended with status {}", code));
  return findings_from_json(output.text());
}

/// As on two machines, with so many workers on each: those with different CROSSDEVICE_HOST_ID send messages.
Findings apart(const std::string& path, std::vector<std::string> variables,
               int workers_per_host = 1) {
  const std::string host = fmt::format(
      "CROSSDEVICE_HOST_ID=doctor-$((CROSSDEVICE_RANK / {})) exec \"$0\" \"$@\"", workers_per_host);
  return among_workers(path, {"/bin/sh", "-c", host}, std::move(variables), 2 * workers_per_host);
}

}  // namespace

Findings probe_shared_memory_workers() { return among_workers("shared memory", {}, {}); }

Findings probe_own_memory_workers() { return among_workers(std::string(kOwnMemory), {}, {}); }

Findings probe_tcp_workers() {
  return apart("TCP", {"CROSSDEVICE_TRANSPORT=tcp", "CROSSDEVICE_TLS="});
}

Findings probe_tls_workers() {
  return apart("TCP with TLS", {"CROSSDEVICE_TRANSPORT=tcp", "CROSSDEVICE_TLS=1"});
}

Findings probe_two_level_workers() {
  // What they count tells which way they took.
  return apart(std::string(kTwoLevels),
               {"CROSSDEVICE_TRANSPORT=tcp", "CROSSDEVICE_TLS=", "CROSSDEVICE_COUNTERS=1"},
               /*workers_per_host=*/2);
}

Findings probe_nccl_workers() {
  constexpr std::size_t kMostWorkers = 8;
  const std::size_t num_gpus = one_device_of_each_gpu().size();
  Finding finding{.name = "all-reduce, " + std::string(kNcclWorkers), .status = Status::ABSENT};
  if (num_gpus < 2) {
    finding.text = num_gpus == 0 ? "no GPU" : "one GPU, where each worker needs its own";
    return {finding};
  }
  if (detail::nccl_library().api == nullptr) {
    finding.text = "no NCCL";
    return {finding};
  }
  // The way through the hosts is no substitute here.
  const auto num_workers = static_cast<int>(std::min(num_gpus, kMostWorkers));
  Findings findings =
      among_workers(std::string(kNcclWorkers), {}, {"CROSSDEVICE_STRICT=1"}, num_workers);
  if (num_gpus > kMostWorkers) findings.at(0).text += fmt::format("; of {} GPUs", num_gpus);
  return findings;
}

Findings probe_ucx_workers(const System& system) {
  const std::string reason = why_no_ucx();
  if (!reason.empty()) {
    return {{.name = "all-reduce, UCX", .status = Status::ABSENT, .text = reason}};
  }
  std::vector<std::string> variables{"CROSSDEVICE_TRANSPORT=ucx"};
  const bool is_configured = process_environment()("UCX_TLS").has_value();
  if (is_configured || !system.rdma_devices().empty()) return apart("UCX", std::move(variables));
  // UCX has nothing else on one machine that would notice the loss of a peer.
  variables.insert(variables.end(), {"UCX_TLS=posix,sysv,self", "UCX_POSIX_ERROR_HANDLING=y",
                                     "UCX_SYSV_ERROR_HANDLING=y"});
  Findings findings = apart("UCX", std::move(variables));
  for (Finding& finding : findings) finding.text += "; over its shared memory: no RDMA device";
  return findings;
}

}  // namespace crossdevice::doctor
