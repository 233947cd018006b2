// SPDX-License-Identifier: Apache-2.0
/// This test process's GPUs, emulated.
#pragma once

#include "support/emulated_cuda.h"
#include "support/emulated_kernels.h"
#include "support/emulated_nccl.h"

namespace crossdevice::testing {

/// Gives the library emulated tables: before its first question for GPUs, from main or a static initialiser; once. They end with the process.
void install_emulated_gpus(int count = 8);

/// Whether this program has called it.
[[nodiscard]] bool has_emulated_gpus();

/// For a test whose workers make calls of NCCL that differ, because that is what it is about: emulation_check.cc asks.
void allow_mismatches();
[[nodiscard]] bool may_mismatch();

/// Of install_emulated_gpus().
[[nodiscard]] EmulatedCuda& emulated_cuda();
[[nodiscard]] EmulatedKernels& emulated_kernels();
[[nodiscard]] EmulatedNccl& emulated_nccl();

}  // namespace crossdevice::testing
