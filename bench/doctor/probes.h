// SPDX-License-Identifier: Apache-2.0
/// Every probe; probe.cc has the list.
#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/system.h"
#include "run/own_addresses.h"

namespace crossdevice::doctor {

[[nodiscard]] Findings probe_machine(const System& system);         ///< cores and memory
[[nodiscard]] Findings probe_limits(const System& system);          ///< ulimit
[[nodiscard]] Findings probe_environment();                         ///< CROSSDEVICE_*
[[nodiscard]] Findings probe_launcher();                            ///< who started this process
[[nodiscard]] Findings probe_shared_memory(const System& system);   ///< where workers here meet
[[nodiscard]] Findings probe_foreign_memory(const System& system);  ///< process_vm_readv
[[nodiscard]] Findings probe_network(const std::vector<run::OwnAddress>& addresses);
[[nodiscard]] Findings probe_devices(const System& system);  ///< hosts' and GPUs, driver, CUDA
[[nodiscard]] Findings probe_nccl();                     ///< which file, which version, or why not
[[nodiscard]] Findings probe_ucx(const System& system);  ///< the same, and what it can use
[[nodiscard]] Findings probe_copies();                   ///< between every pair of devices
[[nodiscard]] Findings probe_host_all_reduce();
[[nodiscard]] Findings probe_batch_all_reduce();  ///< sizes and dtypes together, in two halves
[[nodiscard]] Findings probe_gpu_all_reduce();
[[nodiscard]] Findings probe_nccl_all_reduce();
[[nodiscard]] Findings probe_nccl_workers();  ///< with a GPU each
[[nodiscard]] Findings probe_shared_memory_workers();
[[nodiscard]] Findings probe_own_memory_workers();
[[nodiscard]] Findings probe_tcp_workers();
[[nodiscard]] Findings probe_tls_workers();
[[nodiscard]] Findings probe_two_level_workers();  ///< in shared memory, and messages in between
[[nodiscard]] Findings probe_ucx_workers(const System& system);

}  // namespace crossdevice::doctor
