// SPDX-License-Identifier: Apache-2.0
// A round whose caller runs out of memory half-way: the program's own operator new refuses when it is told to.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/version.h"

#include "comm/detail/chief.h"
#include "comm/detail/control_message.h"
#include "comm/detail/control_plane.h"
#include "support/control_plane_options.h"
#include "support/frame_speaker.h"
#include "support/granted_allocations.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using testing::max_bytes;
using testing::max_bytes_anywhere;
using testing::num_granted;

TEST(ControlPlaneMemoryTest, ARoundThatRunsOutOfMemoryLeavesNothingBehind) {
  ControlPlaneOptions options;
  options.host = "h";
  options.host_id = "i";
  const std::shared_ptr<ControlPlane> plane = ControlPlane::join(options, Deadline::never());
  const std::vector<int> members{0};
  bool was_refused = true;
  for (int granted = 0; was_refused; ++granted) {
    ASSERT_LT(granted, 1000);
    const RoundId id{1, static_cast<std::uint64_t>(granted)};
    const std::string kind = "gather of what needs an allocation of its own";
    std::string bytes = "what needs an allocation of its own, too";
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    num_granted = granted;
    try {
      (void)plane->exchange(id, members, kind, std::move(bytes), deadline);
      was_refused = num_granted < 0;
    } catch (const std::bad_alloc&) {
    }
    num_granted = -1;
    // The same round again, from another stack: were the first one's place still taken, the answer would go there.
    std::thread again([&] {
      try {
        EXPECT_THAT(
            plane->exchange(id, members, kind, "x", Deadline::after(std::chrono::seconds(10))),
            ElementsAre(::testing::_));
      } catch (const OpError& error) {
        ADD_FAILURE() << "after " << granted << " allocations: " << error.what();
      }
    });
    again.join();
    if (HasFailure()) return;
  }
}

/// Such a worker must not try again and again, for the others wait for it.
TEST(ControlPlaneMemoryTest, AWorkerWithoutMemoryForItsAnswerToTheChiefSaysThatItIsItself) {
  constexpr std::size_t kHostBytes = 100'000;
  const testing::SpeakersAddress address;
  std::jthread chief([&] {
    for (;;) {
      const std::unique_ptr<testing::FrameSpeaker> speaker = address.accept();
      if (!speaker) return;
      speaker->say(ControlKind::CHALLENGE, Challenge{.nonce = make_nonce()}.encode());
      while (speaker->hear().has_value()) {
      }
    }
  });
  ControlPlaneOptions options = options_of(1, 2, address.port());
  options.host = std::string(kHostBytes, 'h');  // it says that in its answer
  options.resolve = [](const std::string&, std::uint16_t port) {
    // All that is made before the answer has been made.
    max_bytes_anywhere = kHostBytes / 2;
    return FoundEndpoints{.endpoints = {{asio::ip::address_v4::loopback(), port}}, .error = ""};
  };
  options.chief_address = "a-name:" + std::to_string(address.port());
  try {
    (void)ControlPlane::join(options, Deadline::after(std::chrono::seconds(1)));
    ADD_FAILURE() << "there is no chief";
  } catch (const ResourceExhaustedError& error) {
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, 1);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("its connection ended: std::bad_alloc"));
  }
  max_bytes_anywhere = SIZE_MAX;
  address.stop();
}

TEST(ControlPlaneMemoryTest, WhereTheChiefHasNoRoomForAllPartsTogetherAllAreToldSo) {
  constexpr std::size_t kPartBytes = 100'000;
  std::vector<std::string> told(2);
  Chief chief({.num_workers = 2, .library_version = "v"}, {.rank = 0},
              [&](int rank, const SharedFrame& frame) {
                const Frame heard =
                    decode_frame_body(std::string_view(*frame).substr(kFrameHeadBytes));
                if (heard.kind == ControlKind::MEMBERS) return;
                ASSERT_EQ(heard.kind, ControlKind::EXCHANGE_FAILED);
                const auto failed = ExchangeFailed::decode(heard.payload);
                EXPECT_EQ(failed.code, StatusCode::RESOURCE_EXHAUSTED);
                told[static_cast<std::size_t>(rank)] = failed.text;
              });
  const auto contribute = [&](int rank) {
    const RoundId id{1, 1};
    chief.handle(rank, {ControlKind::EXCHANGE,
                        Exchange{id, {}, "gather", std::string(kPartBytes, 'x')}.encode()});
  };
  Hello hello;
  hello.library_version = "v";
  hello.num_workers = 2;
  hello.member = {.rank = 0, .host = "h", .host_id = "i", .pid = 1};
  chief.admit(hello);
  hello.member.rank = 1;
  chief.admit(hello);
  contribute(0);
  max_bytes = kPartBytes * 3 / 2;
  contribute(1);
  max_bytes = SIZE_MAX;
  EXPECT_THAT(told, ElementsAre(told[1], ::testing::HasSubstr("gather: the chief has no memory")));
}

/// A member says what the chief's process has no memory for: nothing is wrong with that member.
TEST(ControlPlaneMemoryTest, AChiefWithoutMemoryForAMembersPartSaysThatItIsTheChief) {
  constexpr std::size_t kPartBytes = 900'000;
  // All of the part comes in one frame, of which there is no room for the beginning, or for the whole, or for a copy of it.
  for (const std::size_t limit : {kPartBytes / 20, kPartBytes / 2, kPartBytes + 100}) {
    const ReservedPort reserved;
    const std::string part =
        encode_frame(ControlKind::EXCHANGE,
                     Exchange{{1, 1}, {}, "gather", std::string(kPartBytes, 'x')}.encode());
    std::string told;
    std::jthread member([&] {
      std::unique_ptr<testing::FrameSpeaker> speaker;
      std::optional<std::string> challenge;
      while (!challenge.has_value()) {
        speaker = testing::FrameSpeaker::dial(reserved.number());
        challenge = speaker->hear(ControlKind::CHALLENGE);
      }
      Hello hello;
      hello.library_version = library_version_string();
      hello.num_workers = 2;
      hello.job = options_of(1, 2, 0).job;
      hello.member = {.rank = 1, .host = "h", .host_id = "i", .pid = 1};
      hello.mac = hello.expected_mac("secret", Challenge::decode(*challenge).nonce);
      speaker->say(ControlKind::HELLO, hello.encode());
      (void)speaker->hear(ControlKind::MEMBERS);
      max_bytes_anywhere = limit;
      speaker->say(part);
      const std::optional<std::string> words = speaker->hear(ControlKind::ABORT);
      max_bytes_anywhere = SIZE_MAX;
      told = words.has_value() ? Abort::decode(*words).text : "it is gone";
      (void)speaker->hear(ControlKind::GOODBYE);
    });
    std::shared_ptr<ControlPlane> plane =
        ControlPlane::join(options_of(0, 2, reserved.number()), Deadline::never());
    try {
      (void)plane->exchange({1, 1}, {}, "gather", "y", Deadline::after(std::chrono::seconds(60)));
      ADD_FAILURE() << "there was memory for " << limit;
    } catch (const OpError& error) {
      ASSERT_EQ(error.culprits().size(), 1U) << error.what();
      EXPECT_EQ(error.culprits()[0].rank, 0) << error.what();
      EXPECT_EQ(error.code(), StatusCode::ABORTED) << error.what();
    }
    plane.reset();
    member.join();
    EXPECT_THAT(told,
                ::testing::AnyOf("it is gone", ::testing::HasSubstr("the chief has no memory")));
  }
}

/// Also where there is none for the words that say so: the third never comes, and nobody has a deadline.
TEST(ControlPlaneMemoryTest, WhoHasNoMemoryAtAllWaitsForNobody) {
  const ReservedPort reserved;
  std::atomic<int> num_ended{0};
  std::vector<std::jthread> workers;
  for (const int rank : {0, 1}) {
    workers.emplace_back([&, rank] {
      ControlPlaneOptions options = options_of(rank, 3, reserved.number());
      options.heartbeat_timeout = std::chrono::milliseconds(400);  // it speaks often
      try {
        (void)ControlPlane::join(options, Deadline::never());
        ADD_FAILURE() << "met without rank 2";
      } catch (const std::bad_alloc&) {  // none for the error either
      } catch (const ResourceExhaustedError&) {
      }
      ++num_ended;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they have found each other
  max_bytes_anywhere = 0;
  while (num_ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  max_bytes_anywhere = SIZE_MAX;
}

}  // namespace
}  // namespace crossdevice::detail
