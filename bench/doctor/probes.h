// SPDX-License-Identifier: Apache-2.0
/// Every probe; probe.cc has the list.
#pragma once

#include "doctor/finding.h"

namespace crossdevice::doctor {

[[nodiscard]] Findings probe_machine();  ///< cores and memory, and what a container leaves of them
[[nodiscard]] Findings probe_limits();   ///< ulimit
[[nodiscard]] Findings probe_environment();     ///< CROSSDEVICE_*
[[nodiscard]] Findings probe_launcher();        ///< who started this process
[[nodiscard]] Findings probe_shared_memory();   ///< what workers of one machine meet in
[[nodiscard]] Findings probe_foreign_memory();  ///< process_vm_readv
[[nodiscard]] Findings probe_network();         ///< interfaces and addresses
[[nodiscard]] Findings probe_devices();         ///< hosts' and GPUs, driver, CUDA
[[nodiscard]] Findings probe_nccl();            ///< which file, which version, or why not
[[nodiscard]] Findings probe_ucx();             ///< the same, and what it can use
[[nodiscard]] Findings probe_copies();          ///< between every pair of devices
[[nodiscard]] Findings probe_host_all_reduce();
[[nodiscard]] Findings probe_gpu_all_reduce();
[[nodiscard]] Findings probe_nccl_all_reduce();
[[nodiscard]] Findings probe_nccl_workers();  ///< with a GPU each
[[nodiscard]] Findings probe_shared_memory_workers();
[[nodiscard]] Findings probe_own_memory_workers();
[[nodiscard]] Findings probe_tcp_workers();
[[nodiscard]] Findings probe_tls_workers();
[[nodiscard]] Findings probe_two_level_workers();  ///< in shared memory, and messages in between
[[nodiscard]] Findings probe_ucx_workers();

}  // namespace crossdevice::doctor
