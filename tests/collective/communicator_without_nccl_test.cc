// SPDX-License-Identifier: Apache-2.0
// Communicator with tensors on emulated GPUs where there is no NCCL. Built twice, the second time for CROSSDEVICE_STRICT=1.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/gpu_platform.h"

#include "support/emulated_cuda.h"
#include "support/emulated_kernels.h"
#include "support/log_keeper.h"
#include "support/strict_program.h"
#include "support/threaded_cluster.h"
#include "support/values.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::elements;
using ::testing::HasSubstr;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

testing::EmulatedCuda& emulated_cuda() {
  // Never destroyed: the library keeps the tables after main.
  static const auto& cuda = *new auto(std::make_shared<testing::EmulatedCuda>(3));
  return *cuda;
}

[[maybe_unused]] const bool kInstalled = [] {
  const std::shared_ptr<testing::EmulatedCuda> cuda(std::shared_ptr<void>(), &emulated_cuda());
  detail::set_gpu_platform({cuda, std::make_shared<testing::EmulatedKernels>(cuda), ""});
  detail::set_nccl_library({.api = nullptr, .reason_against = "there is none on this machine"});
  (void)std::atexit([] { emulated_cuda().stop(); });
  return true;
}();

TEST(CommunicatorWithoutNccl, GoesThroughHostsOrIsRefused) {
  const testing::LogKeeper log;
  const std::vector<std::string> errors = testing::run_clusters(3, [](const ClusterPtr& cluster) {
    const Device device("GPU:" + std::to_string(cluster->rank()));
    Communicator world(cluster, device);
    EXPECT_FALSE(world.has_nccl());
    const Tensor tensor = vector_of(std::vector<float>(100, 1.0F), device);
    world.all_reduce(ReduceOp::SUM, tensor, {.timeout_seconds = 60});
    EXPECT_EQ(elements(tensor), std::vector<float>(100, 3.0F));
    world.check();
    cluster->barrier(60);
  });
  if (testing::kIsStrict) {
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("there is none on this machine"),
                                   HasSubstr("CROSSDEVICE_STRICT=1"))));
  } else {
    EXPECT_EQ(errors, testing::no_errors(3));
    EXPECT_THAT(log.texts(), HasSubstr("there is none on this machine"));
  }
  EXPECT_TRUE(emulated_cuda().synchronize());
  EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace crossdevice
