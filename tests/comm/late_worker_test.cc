// SPDX-License-Identifier: Apache-2.0
// A worker whose connection to the chief is cut before it has heard that all have come, and that comes again: between the two is a middleman, which cuts it.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "comm/detail/control_message.h"
#include "comm/detail/control_plane.h"
#include "support/control_plane_options.h"
#include "support/frame_speaker.h"

namespace crossdevice::detail {
namespace {

using testing::FrameSpeaker;
using ::testing::HasSubstr;
using testing::SpeakersAddress;

/// Hands on what the worker and the chief at that port say to each other; not what the chief says of the members, where it `keeps_members` to itself: then it
/// hangs up.
void hand_on(const FrameSpeaker& worker, std::uint16_t port, bool keeps_members) {
  std::unique_ptr<FrameSpeaker> chief;
  std::optional<Frame> frame;
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  while (!frame.has_value() && !limit.has_passed()) {  // it may only be about to listen
    chief = FrameSpeaker::dial(port);
    frame = chief->hear();
  }
  std::jthread upwards([&] {
    while (const std::optional<Frame> said = worker.hear()) chief->say(said->kind, said->payload);
    chief->hang_up();
  });
  for (; frame.has_value(); frame = chief->hear()) {
    if (keeps_members && frame->kind == ControlKind::MEMBERS) break;
    worker.say(frame->kind, frame->payload);
  }
  worker.hang_up();
}

TEST(LateWorkerTest, WhoHasNotHeardThatAllHaveComeHearsItWhenItComesAgainAndThatItWasGivenUp) {
  const ReservedPort port;
  const SpeakersAddress between;
  std::atomic<bool> has_heard{false};
  std::jthread middleman([&] {
    for (const bool keeps_members : {true, false}) {
      const std::unique_ptr<FrameSpeaker> worker = between.accept();
      if (!worker) return;
      hand_on(*worker, port.number(), keeps_members);
    }
  });
  const Deadline latest = Deadline::after(std::chrono::seconds(30));
  std::jthread chief([&] {
    const std::shared_ptr<ControlPlane> plane =
        ControlPlane::join(options_of(0, 2, port.number()), latest);
    try {
      (void)plane->exchange({1, 1}, {}, "barrier", "", latest);
      ADD_FAILURE() << "a round without rank 1";
    } catch (const UnavailableError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 (host host1"));
    }
    // It stays until the worker has come.
    const Deadline limit = Deadline::after(std::chrono::seconds(30));
    while (!has_heard.load() && !limit.has_passed()) std::this_thread::yield();
  });
  const std::shared_ptr<ControlPlane> plane =
      ControlPlane::join(options_of(1, 2, between.port()), latest);
  EXPECT_EQ(plane->members().at(0).host, "host0");
  try {
    (void)plane->exchange({1, 1}, {}, "barrier", "", latest);
    ADD_FAILURE() << "a round, though it was given up";
  } catch (const AbortedError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("aborted: gave rank 1 up, which had not heard that all had come: "));
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, 0);
  }
  has_heard = true;
}

}  // namespace
}  // namespace crossdevice::detail
