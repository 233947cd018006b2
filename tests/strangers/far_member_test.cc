// SPDX-License-Identifier: Apache-2.0
/// Members that are far away, while strangers crowd at the door of whom they want to meet: from an address of their own, which is all that tells them apart, as the
/// link that makes the members far is not one of the system's.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/deadline.h"

#include "comm/detail/control_plane.h"
#include "comm/detail/tcp_meeting.h"
#include "comm/detail/wire.h"
#include "strangers/far_link.h"
#include "strangers/relay.h"
#include "support/control_plane_options.h"
#include "support/log_keeper.h"

namespace crossdevice::strangers {
namespace {

/// As much as the slowest links of a campaign have.
constexpr std::chrono::milliseconds kOneWay{200};
/// More than any door has places for.
constexpr std::size_t kNumStrangers = 600;
constexpr const char* kTheirAddress = "127.0.0.2";

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

detail::TcpMeetingOptions options_of(int rank) {
  detail::TcpMeetingOptions options;
  options.rank = rank;
  options.num_ranks = 2;
  options.cluster_id = 7;
  options.secret = "secret";
  return options;
}

TEST(FarMemberTest, MembersMeetWhileStrangersKnock) {
  const testing::LogKeeper log;
  detail::TcpMeeting low(options_of(0));
  detail::TcpMeeting high(options_of(1));
  const FarLink link(high.port(), kOneWay);
  const auto no_addresses = [](detail::WireWriter&, const std::string&) {};
  low.learn(1,
            detail::WireWriter()
                .number(link.port())
                .text("127.0.0.1")
                .list(std::vector<std::string>(), no_addresses)
                .take(),
            true);
  const Crowd crowd({high.port()}, kNumStrangers, kTheirAddress);
  const auto never = [] { return false; };
  std::thread other([&] { high.meet(std::array{0}, soon(), never); });
  low.meet(std::array{1}, soon(), never);
  other.join();
  EXPECT_TRUE(low.has_met(1)) << low.last_error(1);
  EXPECT_TRUE(high.has_met(0)) << high.last_error(0);
  EXPECT_GT(crowd.num_dropped(), 0U);
}

TEST(FarMemberTest, AWorkerJoinsWhileStrangersKnockAtTheChief) {
  const testing::LogKeeper log;
  const detail::ReservedPort reserved;
  const FarLink link(reserved.number(), kOneWay);
  std::array<std::string, 2> errors;
  std::atomic<bool> has_crowd{false};
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      try {
        while (rank != 0 && !has_crowd) std::this_thread::yield();
        const auto plane = detail::ControlPlane::join(
            detail::options_of(rank, 2, rank == 0 ? reserved.number() : link.port()), soon());
        (void)plane->exchange({1, 1}, {}, "gather", "", soon());
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  {
    const Crowd crowd({reserved.number()}, kNumStrangers, kTheirAddress);
    while (crowd.num_dropped() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    has_crowd = true;
    for (std::thread& each : workers) each.join();
  }
  EXPECT_EQ(errors, (std::array<std::string, 2>{}));
}

}  // namespace
}  // namespace crossdevice::strangers
