// SPDX-License-Identifier: Apache-2.0
// As many workers as one machine can play, threads with a control plane each, that mostly have nothing to say. As processes: tests/bench/idle_workers_test.cc.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/comm/reserved_port.h"

#include "support/control_plane_options.h"
#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using testing::no_errors;
using testing::run_ranks;

constexpr std::size_t kWorkers = 256;
/// A member beats four times in it; so long it may be kept from its processor.
constexpr std::chrono::seconds kHeartbeatTimeout{testing::kIsSanitized ? 8 : 5};
/// Whoever does not beat, or is not heard, is lost in it twice.
constexpr auto kIdle = 2 * kHeartbeatTimeout + kHeartbeatTimeout / 2;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

/// The first member that somebody loses, while this lives.
class FirstLoss {
 public:
  [[nodiscard]] std::shared_ptr<void> listen(ControlPlane& plane) {
    return plane.listen({.on_lost =
                             [this](const RankInfo& member, const std::string& why) {
                               if (has_lost_.exchange(true)) return;
                               lost_.set_value(to_string(member) + ": " + why);
                             },
                         .on_abort = nullptr});
  }
  /// What is known after `time`; "" where nobody is lost.
  [[nodiscard]] std::string wait_for(std::chrono::nanoseconds time) {
    return news_.wait_for(time) == std::future_status::timeout ? "" : news_.get();
  }

 private:
  std::atomic<bool> has_lost_{false};
  std::promise<std::string> lost_;
  std::future<std::string> news_ = lost_.get_future();
};

TEST(ManyControlPlanesTest, TwoHundredAndFiftySixIdleWorkersStayTogether) {
  const ReservedPort reserved;
  FirstLoss loss;
  std::vector<std::shared_ptr<ControlPlane>> planes(kWorkers);
  std::vector<std::shared_ptr<void>> listening(kWorkers);
  std::vector<std::string> everybodys;
  for (std::size_t rank = 0; rank < kWorkers; ++rank) everybodys.push_back(std::to_string(rank));
  const auto exchange = [&](std::size_t rank, std::uint64_t number) {
    EXPECT_EQ(planes[rank]->exchange({1, number}, {}, "gather", everybodys[rank], soon()),
              everybodys);
  };
  EXPECT_EQ(run_ranks(kWorkers,
                      [&](std::size_t rank) {
                        ControlPlaneOptions options =
                            options_of(static_cast<int>(rank), kWorkers, reserved.number());
                        options.heartbeat_timeout = kHeartbeatTimeout;
                        planes[rank] = ControlPlane::join(options, soon());
                        listening[rank] = loss.listen(*planes[rank]);
                        exchange(rank, 1);
                      }),
            no_errors(kWorkers));
  EXPECT_EQ(loss.wait_for(kIdle), "");
  EXPECT_EQ(run_ranks(kWorkers, [&](std::size_t rank) { exchange(rank, 2); }), no_errors(kWorkers));
  listening.clear();
  for (std::size_t rank = kWorkers; rank-- > 0;) planes[rank].reset();
}

}  // namespace
}  // namespace crossdevice::detail
