// SPDX-License-Identifier: Apache-2.0
// Calls that run out of memory half-way: the program's own operator new refuses when it is told to.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/tensor.h"

#include "support/granted_allocations.h"

namespace crossdevice {
namespace {

using testing::num_granted;

constexpr std::size_t kCount = 1000;

class CommunicatorMemoryTest : public ::testing::Test {
 protected:
  using Call = std::function<void(Communicator&)>;

  /// Makes the call on new communicators until nothing is refused any more: each time one allocation later is, without which it may do.
  void expect_own_want(const std::string& kind, bool is_in_place, const Call& call) const {
    int num_errors = 0;
    bool was_refused = true;
    for (int granted = 0; was_refused; ++granted) {
      ASSERT_LT(granted, 1000);
      Communicator world(cluster_);
      num_granted = granted;
      try {
        call(world);
        was_refused = num_granted < 0;
        num_granted = -1;
      } catch (const ResourceExhaustedError& error) {
        num_granted = -1;
        ++num_errors;
        EXPECT_NE(std::string(error.what()).find(kind + " #1 "), std::string::npos) << error.what();
        EXPECT_EQ(error.operation().kind, kind);
        EXPECT_EQ(error.operation().sequence, 1U);
        EXPECT_EQ(error.operation().size_bytes, kCount * sizeof(float));
        EXPECT_EQ(error.inputs_intact(), !is_in_place);
      } catch (const std::exception& error) {
        num_granted = -1;
        ADD_FAILURE() << kind << ", allocation " << granted << ": " << error.what();
      }
      if (HasFailure()) return;
    }
    EXPECT_GT(num_errors, 0) << kind << " needs no memory, so that nothing was tested";
  }

  std::shared_ptr<Cluster> cluster_ = Cluster::join();
  std::vector<float> input_ = std::vector<float>(kCount, 1);
  std::vector<float> output_ = std::vector<float>(kCount, -1);
  Tensor from_ = Tensor::view(std::span(input_), "CPU:0");
  Tensor to_ = Tensor::view(std::span(output_), "CPU:0");
};

TEST_F(CommunicatorMemoryTest, ACallWithoutMemorySaysWhichItIsAndThatItsInputsAreIntact) {
  expect_own_want("all_reduce", /*is_in_place=*/false,
                  [&](Communicator& world) { world.all_reduce(ReduceOp::SUM, from_, to_); });
  expect_own_want("reduce", /*is_in_place=*/false,
                  [&](Communicator& world) { world.reduce(ReduceOp::SUM, from_, to_, 0); });
  expect_own_want("gather", /*is_in_place=*/false,
                  [&](Communicator& world) { world.gather(from_, to_, 0); });
  EXPECT_EQ(input_, std::vector<float>(kCount, 1));
}

TEST_F(CommunicatorMemoryTest, OneInPlaceVouchesForNothing) {
  expect_own_want("all_reduce", /*is_in_place=*/true,
                  [&](Communicator& world) { world.all_reduce(ReduceOp::SUM, from_); });
}

/// The root's is read alone.
TEST_F(CommunicatorMemoryTest, WhatTheRootBroadcastsIsIntact) {
  expect_own_want("broadcast", /*is_in_place=*/false,
                  [&](Communicator& world) { world.broadcast(from_, 0); });
}

}  // namespace
}  // namespace crossdevice
