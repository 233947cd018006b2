// SPDX-License-Identifier: Apache-2.0
// In every test program with emulated GPUs (crossdevice_test sees to it): at its end nothing that CUDA or NCCL leaves undefined has happened, whatever its tests
// have looked at themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/emulated_gpus.h"

namespace crossdevice::testing {
namespace {

class NothingUndefined : public ::testing::Environment {
 public:
  void TearDown() override {
    if (!has_emulated_gpus()) return;
    EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
    if (may_mismatch()) return;
    EXPECT_THAT(emulated_nccl().mismatches(), ::testing::IsEmpty());
  }
};

[[maybe_unused]] ::testing::Environment* const kAdded =
    ::testing::AddGlobalTestEnvironment(new NothingUndefined);

}  // namespace
}  // namespace crossdevice::testing
