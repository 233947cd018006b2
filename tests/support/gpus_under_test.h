// SPDX-License-Identifier: Apache-2.0
/// The GPUs of a test that is built twice: emulated, or, with CROSSDEVICE_TESTS_ON_A_GPU, real ones, each split into several devices.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_platform.h"

#if defined(CROSSDEVICE_TESTS_ON_A_GPU)
#include "support/real_gpu.h"
#else
#include "support/emulated_gpus.h"
#endif

namespace crossdevice::testing {

#if defined(CROSSDEVICE_TESTS_ON_A_GPU)

/// Skips the whole program where there is no GPU.
class NeedsAGpu : public ::testing::Environment {
 public:
  void SetUp() override { CROSSDEVICE_SKIP_WITHOUT_GPU(); }
};

/// From a static initialiser, once: GPU:0 to GPU:count-1, at least.
inline void install_gpus(int count) {
  set_logical_gpu_devices(count);
  ::testing::AddGlobalTestEnvironment(new NeedsAGpu);
}

/// Only the emulation sees all that a program does.
inline void expect_nothing_forbidden() {}

#else

inline void install_gpus(int count) { install_emulated_gpus(count); }

inline void expect_nothing_forbidden() {
  EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
}

#endif

}  // namespace crossdevice::testing
