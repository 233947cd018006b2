// SPDX-License-Identifier: Apache-2.0
// A child of fork() may drop ops objects and handles of operations in flight, and is refused where it would wait for them.
#include <atomic>
#include <memory>
#include <optional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/values.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

/// Stays in its hook until it is let go.
class GatedOps : public ReductionToOneDevice {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    open_.wait(false);
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::atomic<bool> open_{false};
};

/// Runs in the child: 0 if all is well. A wait that does not end is ended by the alarm.
int drop_what_is_in_flight(std::unique_ptr<GatedOps> ops, std::optional<PendingBatch> pending,
                           const Tensor& in_flight, const PerReplica& views) {
  alarm(20);
  try {
    (void)in_flight.span<const float>();
    return 1;
  } catch (const FailedPreconditionError&) {
  }
  for (const bool asynchronous : {false, true}) {
    try {
      if (asynchronous) {
        (void)ops->reduce_into_async(ReduceOp::SUM, views, views);
      } else {
        ops->reduce_into(ReduceOp::SUM, views, views);
      }
      return 2;
    } catch (const FailedPreconditionError&) {  // and not a wait for the operation before it
    }
  }
  pending.reset();
  ops.reset();
  return 0;
}

TEST(Fork, AChildDropsOperationsInFlightAndWaitsForNone) {
  auto ops = std::make_unique<GatedOps>();
  const PerReplica value = per_replica({{1.0f}, {2.0f}});
  std::optional<PendingBatch> pending = ops->reduce_into_async(ReduceOp::SUM, value, value);
  float memory[] = {1, 2};
  const PerReplica views{Tensor::view(std::span(memory).first(1), cpu(0)),
                         Tensor::view(std::span(memory).last(1), cpu(1))};
  const pid_t child = fork();
  if (child == 0) {
    _exit(drop_what_is_in_flight(std::move(ops), std::move(pending), value.values()[0], views));
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ops->open();
  EXPECT_EQ(elements(value.values()[0]), std::vector<float>{3});
  pending->wait();
}

}  // namespace
}  // namespace crossdevice
