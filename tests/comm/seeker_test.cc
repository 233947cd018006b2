// SPDX-License-Identifier: Apache-2.0
// One attempt to reach a worker, where what listens at its address is slow, or stops in the middle.
#include "comm/detail/seeker.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <gtest/gtest.h>

#include "comm/detail/meeting_message.h"
#include "comm/detail/meeting_place.h"
#include "support/frame_speaker.h"

namespace crossdevice::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FrameSpeaker;
using testing::SpeakersAddress;

constexpr const char* kSecret = "secret";

Seek question() {
  Seek seek;
  seek.job = 4711;
  seek.rank = 0;
  seek.epoch = {1, {0, 1}};
  return seek;
}

/// What rank 1 says to who seeks it, after a pause before each of its two words; until the other end has heard enough.
void answer(const FrameSpeaker& speaker, milliseconds before_first, milliseconds before_second) {
  std::this_thread::sleep_for(before_first);
  speaker.say(ControlKind::CHALLENGE, Challenge{}.encode());
  const std::optional<Frame> frame = speaker.hear();
  if (!frame.has_value()) return;
  const Seek seek = Seek::decode(frame->payload);
  std::this_thread::sleep_for(before_second);
  Found found;
  found.rank = 1;
  found.epoch = seek.epoch;
  found.mac = found.expected_mac(kSecret, seek.nonce);
  speaker.say(ControlKind::FOUND, found.encode());
  (void)speaker.hear();
}

TEST(SeekerTest, ASlowAnswerIsAnAnswerAsLongAsSomethingIsHeard) {
  constexpr milliseconds kPatience{1000};
  constexpr milliseconds kEachWord{600};
  const SpeakersAddress address;
  std::thread slow([&] {
    for (;;) {  // whoever was held up comes again
      const std::unique_ptr<FrameSpeaker> speaker = address.accept();
      if (!speaker) return;
      answer(*speaker, kEachWord, kEachWord);
    }
  });
  asio::io_context io(1);
  std::optional<SeekResult> result;
  const std::vector<std::string> tries(5, address.text());
  std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1, tries,
                           SeekerPatience{kPatience, kPatience},
                           [&](SeekResult found) { result = std::move(found); })
      ->start();
  io.run();
  EXPECT_TRUE(result.has_value() && result->found.has_value());
  address.stop();
  slow.join();
}

/// As behind a link on which each word takes a good part of the patience.
TEST(SeekerTest, AConnectionThatWasLongInComingGetsTheWholePatienceToo) {
  constexpr milliseconds kPatience{2000};
  constexpr milliseconds kFirstWord{1400};
  const auto seek_once = [&] {
    const SpeakersAddress address(/*backlog=*/0);
    // There is no room for a second one, which the system therefore asks for again after 1 s.
    const std::unique_ptr<FrameSpeaker> first = FrameSpeaker::dial(address.port());
    std::thread slow([&] {
      std::this_thread::sleep_for(milliseconds(300));
      const std::unique_ptr<FrameSpeaker> makes_room = address.accept();
      const std::unique_ptr<FrameSpeaker> speaker = address.accept();
      if (speaker) answer(*speaker, kFirstWord, milliseconds(0));
    });
    asio::io_context io(1);
    bool is_found = false;
    const auto begin = std::chrono::steady_clock::now();
    std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1,
                             std::vector<std::string>{address.text()},
                             SeekerPatience{kPatience, kPatience},
                             [&](const SeekResult& result) { is_found = result.found.has_value(); })
        ->start();
    io.run();
    address.stop();
    slow.join();
    // Sooner it has found room at once, which shows nothing.
    return is_found && std::chrono::steady_clock::now() - begin > kPatience;
  };
  constexpr int kTries = 5;  // a machine may be busy
  bool is_found = false;
  for (int i = 0; i < kTries && !is_found; ++i) is_found = seek_once();
  EXPECT_TRUE(is_found);
}

TEST(SeekerTest, WhoSaysNothingIsGivenUp) {
  const SpeakersAddress silent;
  asio::io_context io(1);
  std::optional<SeekResult> result;
  std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1,
                           std::vector<std::string>{silent.text()},
                           SeekerPatience{milliseconds(50), milliseconds(50)},
                           [&](SeekResult found) { result = std::move(found); })
      ->start();
  io.run();
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->found.has_value());
  EXPECT_FALSE(result->is_gone);  // somebody listens
}

/// What comes of an attempt at an address where `answer` speaks to whoever connects.
SeekResult seek_where(const std::function<void(const FrameSpeaker&)>& answer) {
  const SpeakersAddress address;
  std::thread speaking([&] {
    if (const std::unique_ptr<FrameSpeaker> speaker = address.accept()) {
      answer(*speaker);
      while (speaker->hear().has_value()) {
      }
    }
  });
  asio::io_context io(1);
  std::optional<SeekResult> result;
  std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1,
                           std::vector<std::string>{address.text()},
                           SeekerPatience{seconds(30), seconds(30)},
                           [&](SeekResult found) { result = std::move(found); })
      ->start();
  io.run();
  address.stop();
  speaking.join();
  return result.value_or(SeekResult{});
}

Refused refusal(const std::string& secret, const Nonce& nonce) {
  Refused refused{.code = StatusCode::INTERNAL, .text = "it is\nover"};
  refused.mac = refused.expected_mac(secret, nonce);
  return refused;
}

TEST(SeekerTest, ARefusalIsBelievedOfWhoeverHoldsTheSecretAlone) {
  const auto refuse = [](const std::string& secret, bool is_this_connections) {
    return seek_where([=](const FrameSpeaker& speaker) {
      speaker.say(ControlKind::CHALLENGE, Challenge{}.encode());
      const std::optional<std::string> asked = speaker.hear(ControlKind::SEEK);
      if (!asked.has_value()) return;
      const Nonce nonce = is_this_connections ? Seek::decode(*asked).nonce : make_nonce();
      speaker.say(ControlKind::REFUSED, refusal(secret, nonce).encode());
    });
  };
  const SeekResult proved = refuse(kSecret, true);
  ASSERT_TRUE(proved.refused.has_value());
  EXPECT_EQ(proved.refused->code, StatusCode::INTERNAL);
  for (const SeekResult& unproved :
       {refuse("guess", true), refuse("", true), refuse(kSecret, false)}) {
    EXPECT_FALSE(unproved.refused.has_value());
    EXPECT_FALSE(unproved.is_gone);
    EXPECT_EQ(unproved.hearsay,
              "it refuses without a proof that it holds the secret of this job, and says: it "
              "is?over");
  }
}

TEST(SeekerTest, AnAnswerBeforeTheQuestionIsNone) {
  const SeekResult refused = seek_where([](const FrameSpeaker& speaker) {
    speaker.say(ControlKind::REFUSED, refusal(kSecret, Nonce{}).encode());
  });
  EXPECT_FALSE(refused.refused.has_value());
  const SeekResult found = seek_where([](const FrameSpeaker& speaker) {
    Found message{.rank = 1, .epoch = {2, {1}}};
    message.mac = message.expected_mac(kSecret, Nonce{});
    speaker.say(ControlKind::FOUND, message.encode());
  });
  EXPECT_FALSE(found.found.has_value());
}

std::size_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(SeekerTest, AMeetingPlaceThatEndsWhileItTellsSomebodyLeavesNothing) {
  const SpeakersAddress left_out;  // of a worker that takes long to hear that it was left out
  const std::size_t before = num_descriptors();
  std::vector<std::shared_ptr<MeetingPlace>> places;
  std::vector<MemberInfo> everyone;
  for (int rank = 0; rank < 2; ++rank) {
    places.push_back(MeetingPlace::open({.chief_host = "127.0.0.1",
                                         .chief_port = 0,
                                         .secret = kSecret,
                                         .heartbeat_timeout = seconds(5)}));
    everyone.push_back({.rank = rank, .host = "h", .host_id = "i", .pid = 100 + rank});
    everyone.back().addresses = places.back()->addresses();
  }
  everyone.push_back({.rank = 2, .host = "h", .host_id = "i", .pid = 102});
  everyone.back().addresses = {left_out.text()};
  for (int rank = 0; rank < 2; ++rank)
    places[static_cast<std::size_t>(rank)]->begin(4711, rank, everyone);

  MeetingRequest request;
  request.call = "rebuild(ONLY)";
  request.deadline = Deadline::after(seconds(60));
  request.lost = {2};
  std::thread other([&] { EXPECT_EQ(places[1]->meet(request).epoch.members.size(), 2U); });
  EXPECT_EQ(places[0]->meet(request).epoch.members, (std::vector<int>{0, 1}));
  other.join();
  // Those that looked for it have given up; who tells it that it was left out has not.
  for (;;) {
    const std::unique_ptr<FrameSpeaker> speaker = left_out.accept();
    ASSERT_NE(speaker, nullptr);
    speaker->say(ControlKind::CHALLENGE, Challenge{}.encode());
    if (!speaker->hear().has_value()) continue;
    places.clear();
    EXPECT_EQ(num_descriptors(), before + 1);  // this end of the connection
    return;
  }
}

}  // namespace
}  // namespace crossdevice::detail
