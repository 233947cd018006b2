// SPDX-License-Identifier: Apache-2.0
#include "doctor/probe.h"

#include <algorithm>
#include <array>

#include "doctor/probes.h"

namespace crossdevice::doctor {
namespace {

constexpr std::array kProbes{
    Probe{"machine", probe_machine},
    Probe{"limits", probe_limits},
    Probe{"environment", probe_environment},
    Probe{"launcher", probe_launcher},
    Probe{"shared-memory", probe_shared_memory},
    Probe{"foreign-memory", probe_foreign_memory},
    Probe{"network", probe_network},
    Probe{"devices", probe_devices},
    Probe{"nccl", probe_nccl},
    Probe{"ucx", probe_ucx},
    Probe{"copies", probe_copies},
    Probe{"all-reduce-hosts", probe_host_all_reduce},
    Probe{"all-reduce-gpus", probe_gpu_all_reduce},
    Probe{"all-reduce-nccl", probe_nccl_all_reduce},
    Probe{"all-reduce-shared-memory", probe_shared_memory_workers},
    Probe{"all-reduce-tcp", probe_tcp_workers},
    Probe{"all-reduce-ucx", probe_ucx_workers},
};

}  // namespace

std::span<const Probe> all_probes() { return kProbes; }

const Probe* find_probe(std::string_view name) {
  const auto* const found = std::find_if(kProbes.begin(), kProbes.end(),
                                         [&](const Probe& each) { return name == each.name; });
  return found == kProbes.end() ? nullptr : found;
}

}  // namespace crossdevice::doctor
