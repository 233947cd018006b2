// SPDX-License-Identifier: Apache-2.0
// Rounds whose parts take longer to travel than a silent peer is waited for. One side is a control plane, the other says and hears as slowly as a line would.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/version.h"

#include "comm/detail/control_plane.h"
#include "comm/detail/listening_socket.h"
#include "support/control_plane_options.h"
#include "support/frame_speaker.h"

namespace crossdevice::detail {
namespace {

using testing::FrameSpeaker;
using ::testing::HasSubstr;
using testing::SpeakersAddress;

constexpr std::size_t kPartBytes = std::size_t{1} << 20;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

/// After which a speaker is silent. Who is to be heard in spite of its pauses has longer, since a busy machine makes longer ones.
constexpr std::chrono::milliseconds kSilence{600};
constexpr std::chrono::milliseconds kLongSilence{2000};

ControlPlaneOptions with_limit(ControlPlaneOptions options, std::chrono::milliseconds limit) {
  options.heartbeat_timeout = limit;
  return options;
}

MemberInfo member_of(int rank) {
  return {.rank = rank, .host = "host" + std::to_string(rank), .host_id = "machine", .pid = 7};
}

std::string part(char letter) { return std::string(kPartBytes, letter); }

std::vector<std::string> gather(ControlPlane& plane, const std::string& bytes,
                                std::uint64_t round = 1) {
  return plane.exchange({1, round}, {}, "gather", bytes, soon());
}

/// `bytes` in pieces, `pause` after each, as long as they are taken.
void say_slowly(const FrameSpeaker& speaker, std::string_view bytes, std::size_t piece,
                std::chrono::milliseconds pause) {
  while (!bytes.empty() && speaker.say(bytes.substr(0, piece))) {
    bytes.remove_prefix(std::min(piece, bytes.size()));
    std::this_thread::sleep_for(pause);
  }
}
/// In about twice the long time after which the speaker would be silent.
void say_in_parts(const FrameSpeaker& speaker, const std::string& frame) {
  constexpr std::size_t kNumPieces = 32;
  say_slowly(speaker, frame, frame.size() / kNumPieces, 2 * kLongSilence / kNumPieces);
}
/// In hours.
void trickle(const FrameSpeaker& speaker, const std::string& frame) {
  say_slowly(speaker, frame, 1, std::chrono::milliseconds(5));
}

/// Rank 0, which answers rank 1's part of a round as `answer` says it.
void be_chief(const SpeakersAddress& address,
              const std::function<void(const FrameSpeaker&, const std::string&)>& answer) {
  const std::unique_ptr<FrameSpeaker> worker = address.accept();
  ASSERT_NE(worker, nullptr);
  worker->say(ControlKind::CHALLENGE, Challenge{}.encode());
  const Hello hello = Hello::decode(worker->hear(ControlKind::HELLO).value());
  Welcome welcome{.cluster_id = 1};
  welcome.mac = welcome.expected_mac("secret", hello.nonce);
  worker->say(ControlKind::WELCOME, welcome.encode());
  worker->say(ControlKind::MEMBERS, Members{{member_of(0), hello.member}}.encode());
  const Exchange asked = Exchange::decode(worker->hear(ControlKind::EXCHANGE).value());
  const Exchanged answered{asked.id, {part('a'), asked.bytes}};
  answer(*worker, encode_frame(ControlKind::EXCHANGED, answered.encode()));
  while (worker->hear().has_value()) {
  }
}

/// Rank 1, which is welcome.
std::unique_ptr<FrameSpeaker> be_worker(std::unique_ptr<FrameSpeaker> chief) {
  const std::optional<std::string> challenge = chief->hear(ControlKind::CHALLENGE);
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = 2;
  hello.member = member_of(1);
  hello.mac = hello.expected_mac("secret", Challenge::decode(challenge.value()).nonce);
  chief->say(ControlKind::HELLO, hello.encode());
  (void)chief->hear(ControlKind::MEMBERS);
  return chief;
}

std::string own_part(std::uint64_t round = 1) {
  return encode_frame(ControlKind::EXCHANGE,
                      Exchange{{1, round}, {}, "gather", part('b')}.encode());
}

/// Rank 0 of two, where it listens already.
ControlPlaneOptions chief_options() {
  const std::shared_ptr<ListeningSocket> listener =
      ListeningSocket::open("127.0.0.1", 0, "the chief");
  ControlPlaneOptions options = options_of(0, 2, listener->port());
  options.listener = listener;
  return options;
}

TEST(ControlPlaneLargeTest, AnAnswerThatIsOnItsWayIsASignOfLife) {
  const SpeakersAddress address;
  const std::jthread chief([&] { be_chief(address, say_in_parts); });
  const auto plane =
      ControlPlane::join(with_limit(options_of(1, 2, address.port()), kLongSilence), soon());
  EXPECT_TRUE(gather(*plane, part('b')) == (std::vector<std::string>{part('a'), part('b')}));
}

TEST(ControlPlaneLargeTest, AnAnswerThatTricklesIsNone) {
  const SpeakersAddress address;
  const std::jthread chief([&] { be_chief(address, trickle); });
  const auto plane =
      ControlPlane::join(with_limit(options_of(1, 2, address.port()), kSilence), soon());
  try {
    (void)gather(*plane, part('b'));
    ADD_FAILURE() << "it takes hours to come";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is gone: no heartbeat for 0.6 s"));
  }
}

TEST(ControlPlaneLargeTest, APartThatIsOnItsWayIsASignOfLife) {
  const ControlPlaneOptions options = with_limit(chief_options(), kLongSilence);
  const std::uint16_t port = options.listener->port();
  const std::jthread worker([port] {
    const std::unique_ptr<FrameSpeaker> chief = be_worker(FrameSpeaker::dial(port));
    say_in_parts(*chief, own_part());
    EXPECT_TRUE(chief->hear(ControlKind::EXCHANGED).has_value());
  });
  const auto plane = ControlPlane::join(options, soon());
  EXPECT_TRUE(gather(*plane, part('a')) == (std::vector<std::string>{part('a'), part('b')}));
}

TEST(ControlPlaneLargeTest, APartThatTricklesIsNone) {
  const ControlPlaneOptions options = with_limit(chief_options(), kSilence);
  const std::uint16_t port = options.listener->port();
  const std::jthread worker([port] { trickle(*be_worker(FrameSpeaker::dial(port)), own_part()); });
  const auto plane = ControlPlane::join(options, soon());
  try {
    (void)gather(*plane, part('a'));
    ADD_FAILURE() << "it takes hours to come";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (host host1, pid 7) is gone: no heartbeat for"));
  }
}

/// A chief whose own worker has got all answers, and leaves, while another one's are still on their way: more than the system keeps for a connection.
TEST(ControlPlaneLargeTest, AChiefThatLeavesSendsItsAnswersToTheirEnd) {
  constexpr std::uint64_t kNumRounds = 6;
  constexpr std::chrono::milliseconds kSlowTime{6500};  // a chief that is heard leaves after 5 s
  const ControlPlaneOptions options = chief_options();
  const std::jthread chief([&options] {
    const auto plane = ControlPlane::join(options, soon());
    for (std::uint64_t round = 1; round <= kNumRounds; ++round) {
      (void)gather(*plane, part('a'), round);
    }
  });
  const std::unique_ptr<FrameSpeaker> worker =
      be_worker(FrameSpeaker::dial_thinly(options.listener->port()));
  for (std::uint64_t round = 1; round <= kNumRounds; ++round) worker->say(own_part(round));
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t num_answers = 0;
  const auto pause = [&] {
    if (std::chrono::steady_clock::now() - begin < kSlowTime) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  };
  while (const std::optional<Frame> frame = worker->hear(pause)) {
    if (frame->kind == ControlKind::EXCHANGED) ++num_answers;
    if (frame->kind == ControlKind::GOODBYE) break;
  }
  EXPECT_EQ(num_answers, kNumRounds);
}

}  // namespace
}  // namespace crossdevice::detail
