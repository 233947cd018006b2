// SPDX-License-Identifier: Apache-2.0
/// What a worker may not do to the others' memory when it was stopped. Workers are threads; what engines do when processes are killed or stopped is
/// tested for all of them in engine_processes.h.
#include "crossdevice/collective/shared_direct_reduce.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"

#include "collective/detail/shared_location.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 20;
constexpr float kAfterwards = 7;

/// From the pool of a host device that nobody else uses, whose first segment is as large as that of any other such device.
Tensor make_tensor(int device, std::size_t count = kCount) {
  return Tensor::zeros(DType::FLOAT32, {count}, "CPU:" + std::to_string(device));
}

/// New memory whose last segment has the descriptor `fd`, which is free: the system gives out the lowest. Each covers what two tensors had in theirs.
std::vector<Tensor> reopen_under(int fd) {
  std::vector<Tensor> made;
  for (int device = 2; device < 8; ++device) {
    made.push_back(make_tensor(device, 3 * kCount));
    if (detail::require_location(made.back()).segment_fd == fd) break;
  }
  return made;
}

void reduce(SharedDirectReduce& engine, const Tensor& input, const Tensor& output,
            const Deadline& deadline) {
  const CollectiveValue value{std::span(&input, 1), std::span(&output, 1)};
  engine.all_reduce({.kind = "test", .sequence = 1, .op = ReduceOp::SUM, .deadline = deadline},
                    std::span(&value, 1));
}

/// Gives up waiting for the other, who is stopped; lets go of all that it announced, as who rebuilds does, and goes on with other memory.
std::vector<Tensor> give_up_and_go_on(std::optional<SharedDirectReduce>& engine) {
  SharedLocation announced;
  {
    const Tensor input = make_tensor(2);
    const Tensor output = make_tensor(2);
    announced = detail::require_location(output);
    EXPECT_EQ(detail::require_location(input).segment_id, announced.segment_id);
    EXPECT_THROW(reduce(*engine, input, output, Deadline::after(std::chrono::milliseconds(200))),
                 DeadlineExceededError);
  }
  engine.reset();
  std::vector<Tensor> fresh = reopen_under(announced.segment_fd);
  const SharedLocation now = detail::require_location(fresh.back());
  EXPECT_EQ(now.segment_fd, announced.segment_fd);
  EXPECT_EQ(now.segment_size_bytes, announced.segment_size_bytes);
  for (const Tensor& each : fresh) std::ranges::fill(each.span<float>(), kAfterwards);
  return fresh;
}

/// Rank 1 is stopped when it is about to see that rank 0 has announced, and goes on when what rank 0 announced is gone.
TEST(SharedDirectReduceTest, WhoWasStoppedWritesIntoNoMemoryOfLaterCalls) {
  std::latch is_stopped{1};
  std::latch may_go_on{1};
  std::latch has_ended{1};
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    std::optional<SharedDirectReduce> engine(std::in_place, cluster);
    if (cluster->rank() == 0) {
      is_stopped.wait();
      const std::vector<Tensor> fresh = give_up_and_go_on(engine);
      may_go_on.count_down();
      has_ended.wait();
      for (const Tensor& each : fresh) {
        const std::span<const float> values = each.span<const float>();
        EXPECT_EQ(std::ranges::count(values, kAfterwards), std::ssize(values));
      }
      return;
    }
    bool was_stopped = false;
    engine->while_waiting([&] {
      if (was_stopped) return;
      was_stopped = true;
      is_stopped.count_down();
      may_go_on.wait();
    });
    const Tensor input = make_tensor(1);
    std::ranges::fill(input.span<float>(), 1.0F);  // or a sum might be what is there already
    const Tensor output = make_tensor(1);
    try {
      reduce(*engine, input, output, Deadline::after(std::chrono::seconds(60)));
      ADD_FAILURE() << "no error";
    } catch (const OpError& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr("has given up waiting for rank 1 ("),
                                   ::testing::HasSubstr("is another file now")));
    }
    has_ended.count_down();
  };
  EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice
