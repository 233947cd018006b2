// SPDX-License-Identifier: Apache-2.0
// A call has one deadline: its own timeout's, or else its object's, or else the environment's; on every path, and for whatever it calls itself.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/ops/cross_device_ops.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using Moment = Deadline::Clock::time_point;

constexpr double kEnvironments = 5;
const bool kIsSet = (::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "5", 1), true);

/// Notes the deadline of every hook, and calls itself from the first one.
class Noting : public CrossDeviceOps {
 public:
  explicit Noting(std::optional<double> timeout_seconds = std::nullopt)
      : CrossDeviceOps(timeout_seconds) {}
  /// The only one that all hooks since the last time had, in seconds from now, rounded; nothing: none. -1: they differ, or there were none.
  [[nodiscard]] std::optional<double> seconds() {
    const std::vector<Moment> noted = std::exchange(noted_, {});
    if (noted.empty()) return -1;
    for (const Moment& each : noted) {
      if (each != noted[0]) return -1;
    }
    if (noted[0] == Moment::max()) return std::nullopt;
    return std::round(std::chrono::duration<double>(noted[0] - Deadline::Clock::now()).count());
  }
  std::optional<double> inner;  // of the call that a hook makes

 protected:
  Mirrored reduce_implementation(ReduceOp, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions&) override {
    noted_.push_back(current_deadline().moment());
    if (inner.has_value()) {
      (void)gather(value, "CPU:0", 0, {.timeout_seconds = *inner});
    } else {
      (void)gather(value, "CPU:0", 0);
    }
    (void)broadcast(value.values()[0], "CPU:1");
    noted_.push_back(current_deadline().moment());
    return destinations.make_result(value.dtype(), value.shape(), value);
  }
  Mirrored gather_implementation(const PerReplica& value, const Destinations& destinations,
                                 int axis, const CommunicationOptions& options) override {
    noted_.push_back(current_deadline().moment());
    return CrossDeviceOps::gather_implementation(value, destinations, axis, options);
  }
  Mirrored broadcast_implementation(const Tensor& tensor,
                                    const Destinations& destinations) override {
    noted_.push_back(current_deadline().moment());
    return CrossDeviceOps::broadcast_implementation(tensor, destinations);
  }

 private:
  std::vector<Moment> noted_;
};

PerReplica value() { return per_replica({{1.0f}, {2.0f}}); }

TEST(CallDeadline, IsTheCallsOrElseTheObjectsOrElseTheEnvironments) {
  ASSERT_TRUE(kIsSet);
  Noting plain;
  (void)plain.reduce(ReduceOp::SUM, value(), "CPU:0");
  EXPECT_EQ(plain.seconds(), kEnvironments);
  for (const double own : {2.0, 50.0}) {
    Noting ops(own);
    (void)ops.reduce(ReduceOp::SUM, value(), "CPU:0");
    EXPECT_EQ(ops.seconds(), own);
    (void)ops.reduce(ReduceOp::SUM, value(), "CPU:0", {.timeout_seconds = 500.0});
    EXPECT_EQ(ops.seconds(), 500.0);
    (void)ops.reduce(ReduceOp::SUM, value(), "CPU:0", {.timeout_seconds = 0.0});
    EXPECT_EQ(ops.seconds(), std::nullopt);
  }
  Noting unlimited(0.0);
  (void)unlimited.reduce(ReduceOp::SUM, value(), "CPU:0");
  EXPECT_EQ(unlimited.seconds(), std::nullopt);
}

TEST(CallDeadline, IsOneOnEveryPath) {
  Noting ops(50.0);
  const PerReplica one = value();
  const std::vector<ValueDestinationPair> pairs{{one, "CPU:0"}, {one, "CPU:1"}};
  (void)ops.batch_reduce(ReduceOp::SUM, pairs);
  EXPECT_EQ(ops.seconds(), 50.0);
  (void)ops.gather(one, "CPU:0", 0);
  EXPECT_EQ(ops.seconds(), 50.0);
  (void)ops.broadcast(one.values()[0], "CPU:1");
  EXPECT_EQ(ops.seconds(), 50.0);
  (void)ops.broadcast(slices_of({1, 2}, {0, 1}, {2, 1}, cpu(0)), "CPU:1");
  EXPECT_EQ(ops.seconds(), 50.0);
  ops.batch_reduce_async(ReduceOp::SUM, pairs).wait();
  EXPECT_EQ(ops.seconds(), 50.0);
}

/// Not by the constructor, so that workers who agree on their arguments hear of it first.
TEST(CallDeadline, AnObjectsTimeoutThatIsNoneIsRefusedByEveryCall) {
  const PerReplica one = value();
  const std::vector<ValueDestinationPair> pairs{{one, "CPU:0"}, {one, "CPU:1"}};
  for (const double wrong : {-1.0, std::nan("")}) {
    Noting ops(wrong);
    for (int i = 0; i < 2; ++i) {  // the first holds up no other
      EXPECT_THROW((void)ops.reduce(ReduceOp::SUM, one, "CPU:0"), ValueError);
      EXPECT_THROW((void)ops.batch_reduce(ReduceOp::SUM, pairs), ValueError);
      EXPECT_THROW((void)ops.gather(one, "CPU:0", 0), ValueError);
      EXPECT_THROW((void)ops.broadcast(one.values()[0], "CPU:1"), ValueError);
      EXPECT_THROW((void)ops.reduce_async(ReduceOp::SUM, one, "CPU:0"), ValueError);
      EXPECT_THROW((void)ops.batch_reduce_async(ReduceOp::SUM, pairs), ValueError);
      EXPECT_THROW((void)ops.gather_async(one, "CPU:0", 0), ValueError);
      EXPECT_THROW((void)ops.broadcast_async(one.values()[0], "CPU:1"), ValueError);
    }
    EXPECT_EQ(ops.seconds(), -1);  // no hook ran
  }
}

TEST(CallDeadline, ANestedCallWithATimeoutOfItsOwnHasTheEarlierOne) {
  Noting ops;
  ops.inner = 500.0;
  (void)ops.reduce(ReduceOp::SUM, value(), "CPU:0", {.timeout_seconds = 50.0});
  EXPECT_EQ(ops.seconds(), 50.0);
  ops.inner = 2.0;
  (void)ops.reduce(ReduceOp::SUM, value(), "CPU:0", {.timeout_seconds = 50.0});
  EXPECT_EQ(ops.seconds(), -1);  // the gather's is another
}

}  // namespace
}  // namespace crossdevice
