// SPDX-License-Identifier: Apache-2.0
/// What tests of MultiWorkerAllReduce on emulated GPUs share.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/copy.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/values.h"

#include "support/gpu_fixture.h"

namespace crossdevice::testing {

/// In a static initialiser: the log says all, before anybody asks for its level.
inline bool install_gpus_and_log_all() {
  unsetenv("CROSSDEVICE_LOG_LEVEL");                   // NOLINT(concurrency-mt-unsafe)
  setenv("CROSSDEVICE_LOG", "info", /*overwrite=*/1);  // NOLINT(concurrency-mt-unsafe)
  install_emulated_gpus();
  return true;
}

inline MultiWorkerAllReduceOptions with(const char* algorithm, int shards = 1) {
  return {.all_reduce_spec = {algorithm, shards, -1}};
}

inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const Tensor here = tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0");
  const auto* const data = static_cast<const std::byte*>(here.data());
  return {data, data + here.size_bytes()};
}

inline void expect_bytes(const DistributedValues& value, const std::vector<std::byte>& expected,
                         const std::string& what) {
  for (const Tensor& tensor : value.values()) {
    EXPECT_EQ(bytes_of(tensor), expected) << what << " on " << tensor.device().short_name();
  }
}

/// At its end all that NCCL was asked for fitted together.
class MultiWorkerGpuTest : public EmulatedGpuTest {
 protected:
  void TearDown() override {
    EmulatedGpuTest::TearDown();
    EXPECT_EQ(emulated_nccl().mismatches(), std::vector<std::string>());
  }
  static std::size_t count(std::string_view function) {
    return emulated_cuda().calls().count(function);
  }
};

}  // namespace crossdevice::testing
