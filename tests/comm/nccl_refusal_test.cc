// SPDX-License-Identifier: Apache-2.0
// The real NCCL, asked for GPUs that are emulated: without a driver it refuses, and says why.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/device.h"

#include "comm/detail/nccl_loader.h"
#include "support/emulated_gpus.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::thrown;

const bool is_installed = [] {
  testing::install_emulated_gpus(2);
  detail::set_nccl_library(detail::load_nccl());
  return true;
}();

TEST(NcclRefusalTest, IsToldInNcclsOwnWords) {
  const detail::NcclLibrary library = detail::nccl_library();
  if (library.api == nullptr) {
    EXPECT_EQ(thrown<UnavailableError>([] {
                (void)detail::NcclClique::of({"GPU:0", "GPU:1"});
              }),
              "NCCL cannot: " + library.reason_against);
    GTEST_SKIP() << library.reason_against;
  }
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a driver";
  for (int i = 0; i < 2; ++i) {  // it is tried anew
    EXPECT_THAT(
        thrown<UnavailableError>([] {
          (void)detail::NcclClique::of({"GPU:0", "GPU:1"}, 60);
        }),
        AllOf(StartsWith("NCCL " + detail::nccl_version_text(library.api->version()) +
                         " cannot make communicators of [GPU:0, GPU:1]: "),
              HasSubstr(library.api->error_text(detail::NcclStatus::UNHANDLED_CUDA_ERROR))));
  }
}

}  // namespace
}  // namespace crossdevice
