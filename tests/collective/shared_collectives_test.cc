// SPDX-License-Identifier: Apache-2.0
// A worker whose deadline passes while it copies or reduces what the others show: no worker may take that call for a success, nor go on with the next one.
#include "crossdevice/collective/shared_collectives.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

constexpr int kLate = 1;
constexpr std::size_t kCount = std::size_t{1} << 20;

/// One call of the engine: `mine` has kCount elements, `all` those of both workers.
using Call = std::function<void(SharedCollectives& engine, const CollectiveRequest& request,
                                const Tensor& mine, const Tensor& all)>;

/// `failing` throws an Error that names kLate alone.
template <class Error, class Failing>
void expect_blame(const Failing& failing) {
  try {
    failing();
    ADD_FAILURE() << "ended as if it were well";
  } catch (const Error& error) {
    ASSERT_EQ(error.culprits().size(), 1U) << error.what();
    EXPECT_EQ(error.culprits()[0].rank, kLate) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(to_string(error.culprits()[0])),
              std::string_view::npos)
        << error.what();
  }
}

/// On both workers; kLate has no time left when the other one has shown its values.
void expect_end_for_all(const Call& call) {
  const auto work = [&call](const std::shared_ptr<Cluster>& cluster) {
    SharedCollectives engine(cluster, Deadline::after_timeout_seconds(60));
    const Tensor mine = Tensor::zeros(DType::FLOAT32, {kCount}, "CPU:0");
    const Tensor all = Tensor::zeros(DType::FLOAT32, {2 * kCount}, "CPU:0");
    CollectiveRequest request{.kind = "test", .sequence = 1, .op = ReduceOp::SUM};
    request.deadline = Deadline::after_timeout_seconds(60);
    cluster->barrier(60);
    if (cluster->rank() == kLate) {
      // If this were too short, it would be late for another reason.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      request.deadline = Deadline::after(std::chrono::seconds(0));
      expect_blame<DeadlineExceededError>([&] { call(engine, request, mine, all); });
    } else {
      expect_blame<OpError>([&] { call(engine, request, mine, all); });
    }
    request.sequence = 2;
    request.deadline = Deadline::after_timeout_seconds(60);
    EXPECT_THROW(call(engine, request, mine, all), OpError);
    cluster->barrier(60);
  };
  EXPECT_EQ(testing::run_clusters(2, work), testing::no_errors(2));
}

TEST(SharedCollectivesTest, LateInAllGather) {
  expect_end_for_all([](SharedCollectives& engine, const CollectiveRequest& request,
                        const Tensor& mine,
                        const Tensor& all) { engine.all_gather(request, mine, all); });
}

TEST(SharedCollectivesTest, LateInBroadcastWhoseRootHasNothingToDo) {
  expect_end_for_all([](SharedCollectives& engine, const CollectiveRequest& request,
                        const Tensor& mine,
                        const Tensor& /*all*/) { engine.broadcast(request, mine, 1 - kLate); });
}

TEST(SharedCollectivesTest, LateInGatherAtItsRoot) {
  expect_end_for_all([](SharedCollectives& engine, const CollectiveRequest& request,
                        const Tensor& mine,
                        const Tensor& all) { engine.gather(request, mine, all, kLate); });
}

TEST(SharedCollectivesTest, LateInReduceAtItsRoot) {
  expect_end_for_all([](SharedCollectives& engine, const CollectiveRequest& request,
                        const Tensor& mine, const Tensor& /*all*/) {
    engine.reduce(request, mine, Tensor::empty(DType::FLOAT32, {kCount}, "CPU:0"), kLate);
  });
}

TEST(SharedCollectivesTest, LateInReduceScatter) {
  expect_end_for_all([](SharedCollectives& engine, const CollectiveRequest& request,
                        const Tensor& mine,
                        const Tensor& all) { engine.reduce_scatter(request, all, mine); });
}

}  // namespace
}  // namespace crossdevice
