// SPDX-License-Identifier: Apache-2.0
/// Strangers at every door of a job of processes that goes on reducing, with exact values.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "comm/detail/reception.h"
#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"
#include "strangers/relay.h"
#include "strangers/strangers_fixture.h"
#include "support/sanitizers.h"
#include "support/worker_processes.h"

namespace crossdevice::strangers {
namespace {

using detail::ControlKind;
using detail::encode_frame;
using detail::Frame;
using detail::Nonce;
using detail::Reception;
using testing::all_well;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_F(StrangersTest, TheDoorsAreKnown) {
  begin();
  EXPECT_THAT(doors_, SizeIs(4));  // the chief's, and three meeting places
  EXPECT_EQ(
      std::count_if(doors_.begin(), doors_.end(), [](const Door& each) { return each.is_chiefs; }),
      1);
  expect_a_good_end();
}

TEST_F(StrangersTest, WhoHasNoProofIsRefusedAtEveryDoorAndNamedOnce) {
  begin();
  for (const Door& door : doors_) {
    for (int i = 0; i < 5; ++i) {
      for (const std::size_t noise : {1U, 2U, 5U, 6U}) {
        const Caller caller(as_member(door));
        caller.say(words_of_stranger(noise));
        ::shutdown(caller.descriptor(), SHUT_WR);
        expect_dismissed(caller);
      }
      for (const char* secret : {"", "another", "what nobody else know"}) {
        const Caller caller(as_member(door));
        caller.say(words_for(door, caller.hear_challenge(), secret));
        expect_dismissed(caller);
      }
      const Caller without_waiting(as_member(door));
      without_waiting.say(words_for(door, Nonce{}, kJobSecret));
      expect_dismissed(without_waiting);
      const Caller member(as_member(door));  // what only a member may say
      member.say(encode_frame(ControlKind::ABORT, detail::Abort{1, "it is over"}.encode()));
      expect_dismissed(member);
    }
    EXPECT_EQ(times_said(door, "it did not say who it is: "), 1U) << job_->printed(door.rank);
    EXPECT_EQ(times_said(door, door.is_chiefs ? "this worker and the chief hold different secrets"
                                              : "it does not hold the secret of this job"),
              1U)
        << job_->printed(door.rank);
    if (door.is_chiefs) {
      EXPECT_EQ(times_said(door, "this worker has no secret, the chief has one"), 1U)
          << job_->printed(door.rank);
    }
    EXPECT_EQ(times_said(door, ""), door.is_chiefs ? 3U : 2U) << job_->printed(door.rank);
  }
  expect_going_on();
  expect_a_good_end();
}

TEST_F(StrangersTest, WhoGoesWithoutAWordIsNamedOnceAndIsNoWarning) {
  begin({.variables = {"CROSSDEVICE_LOG_LEVEL=info"}});
  const auto num_visits = [&](const Door& door) {
    return count_of("crossdevice: info: " + name_of(door) + " had a visit from 127.0.0.1 (port ",
                    job_->printed(door.rank));
  };
  for (const Door& door : doors_) {
    for (int i = 0; i < 5; ++i) (void)Caller(as_member(door)).hear_challenge();
    EXPECT_TRUE(Job::await([&] { return num_visits(door) != 0; })) << job_->printed(door.rank);
  }
  expect_going_on();
  expect_a_good_end();
  for (const Door& door : doors_) {
    EXPECT_EQ(num_visits(door), 1U) << job_->printed(door.rank);
    EXPECT_EQ(times_said(door, ""), 0U) << job_->printed(door.rank);
  }
}

TEST_F(StrangersTest, AReplayedHandshakeIsRefused) {
  Relay relay;
  JobOptions options;
  options.chief_address_of[1] = relay.address();
  Job job(options);
  relay.carry_to(job.chief_port());
  ASSERT_TRUE(job.await_rounds(3)) << job.printed();
  const std::string recorded = relay.said_by_caller();
  const std::size_t size = detail::kFrameHeadBytes +
                           detail::decode_frame_head(recorded.substr(0, detail::kFrameHeadBytes),
                                                     detail::kMaxFrameBytes);
  ASSERT_EQ(detail::decode_frame_body(recorded.substr(4, size - 4)).kind, ControlKind::HELLO);
  for (const std::string& replayed : {recorded, recorded.substr(0, size)}) {
    for (int i = 0; i < 3; ++i) {
      const Caller caller({.port = job.chief_port()});
      (void)caller.hear_challenge();
      caller.say(replayed);
      expect_dismissed(caller);
    }
  }
  const Caller reflected({.port = job.chief_port()});
  (void)reflected.hear_challenge();
  reflected.say(relay.said_by_listener());
  expect_dismissed(reflected);
  EXPECT_EQ(count_of("this worker and the chief hold different secrets", job.printed(0)), 1U)
      << job.printed(0);
  EXPECT_TRUE(job.await_rounds(3)) << job.printed();
  EXPECT_EQ(job.finish(), all_well(3)) << job.printed();
}

TEST_F(StrangersTest, AProofIsGoodForOneConnection) {
  begin();
  for (const Door& door : doors_) {
    const Caller first(as_member(door));
    const Caller second(as_member(door));
    const std::string words = words_for(door, first.hear_challenge(), kJobSecret);
    (void)second.hear_challenge();
    second.say(words);
    const std::optional<Frame> refusal = second.hear_frame();
    ASSERT_TRUE(refusal.has_value());
    EXPECT_THAT(detail::Refused::decode(refusal->payload).text, HasSubstr("secret"));
    // On the connection that it was made for it is believed: what is refused then is something else.
    first.say(words);
    const std::optional<Frame> answer = first.hear_frame();
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(detail::Refused::decode(answer->payload).text,
                HasSubstr(door.is_chiefs ? "holds already" : "it is of another job"));
  }
  expect_going_on();
  expect_a_good_end();
}

TEST_F(StrangersTest, ARankOutOfRangeAndLateWorkersOfEarlierJobsAreRefused) {
  begin();
  const auto door =
      std::find_if(doors_.begin(), doors_.end(), [](const Door& each) { return each.is_chiefs; });
  ASSERT_NE(door, doors_.end());
  const auto refusal = [&](int rank, std::uint64_t job, std::uint64_t epoch) {
    const Caller caller(as_member(*door));
    caller.say(hello(caller.hear_challenge(), kJobSecret, rank, job, epoch));
    const std::optional<Frame> answer = caller.hear_frame();
    return answer.has_value() && answer->kind == ControlKind::REFUSED
               ? detail::Refused::decode(answer->payload).text
               : "it is not refused";
  };
  const std::map<std::string, std::string> refusals = {
      {refusal(3, 0, 1), "rank 3 is outside [0, 3)"},
      {refusal(-1, 0, 1), "rank -1 is outside [0, 3)"},
      {refusal(2147483647, 0, 1), "rank 2147483647 is outside [0, 3)"},
      {refusal(1, 0, 1), "host elsewhere, pid 4711 claims rank 1"},
      {refusal(1, 4711, 3), "host elsewhere, pid 4711 comes from epoch 3 of another job"},
      {refusal(1, 0, 2), "host elsewhere, pid 4711 comes from epoch 2 of this job"}};
  for (const auto& [text, expected] : refusals) {
    EXPECT_THAT(text, HasSubstr(expected));
    EXPECT_EQ(times_said(*door, expected), 1U) << job_->printed(0);
  }
  expect_going_on();
  expect_a_good_end();
}

TEST_F(StrangersTest, ProcessesOfOtherJobsAreRefused) {
  begin();
  const std::string chief = "127.0.0.1:" + std::to_string(job_->chief_port());
  std::vector<std::unique_ptr<Job>> others;
  for (const char* secret : {"", "what others know too", kJobSecret}) {
    JobOptions options{.secret = secret, .join_seconds = 3};
    options.chief_address_of = {{1, chief}, {2, chief}};
    others.push_back(std::make_unique<Job>(options));
  }
  for (const auto& each : others) {
    EXPECT_EQ(each->wait(), std::vector<int>(3, 3)) << each->printed();
    EXPECT_THAT(each->printed(0), HasSubstr("2 of 3 workers did not come in time"));
    for (const int rank : {1, 2}) {
      EXPECT_THAT(each->printed(rank), HasSubstr(each == others[2] ? "holds already" : "secret"));
      EXPECT_THAT(each->printed(rank), Not(HasSubstr(kJobSecret)));
    }
  }
  EXPECT_EQ(count_of("hold different secrets", job_->printed(0)), 1U) << job_->printed(0);
  for (const char* claim : {"claims rank 1, which", "claims rank 2, which"}) {
    EXPECT_EQ(count_of(claim, job_->printed(0)), 1U) << job_->printed(0);
  }
  expect_going_on();
  expect_a_good_end();
}

TEST_F(StrangersTest, TheSilentAreBoundedAndDroppedByADeadline) {
  begin();
  const std::vector<std::size_t> before = num_open_files();
  std::vector<Caller> silent;
  for (int i = 0; i < 300; ++i) {
    for (const Door& door : doors_) {
      silent.emplace_back(Where{.port = door.port});
      // Some begin a frame that never ends.
      if (i % 3 == 0)
        silent.back().say(encode_frame(ControlKind::HELLO, std::string(100, 'x')).substr(0, 20));
    }
  }
  const std::vector<std::size_t> now = num_open_files();
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    EXPECT_LE(now[rank], before[rank] + (rank == 0 ? 2 : 1) * Reception::kPlaces) << rank;
  }
  expect_going_on();
  // All are sent away, though some go on saying a byte now and then.
  const bool are_dropped = Job::await([&] {
    bool have_all_ended = true;
    for (std::size_t i = 0; i < silent.size(); ++i) {
      if (i % 3 == 0) silent[i].say("x");
      have_all_ended = have_all_ended && silent[i].has_ended();
    }
    return have_all_ended;
  });
  EXPECT_TRUE(are_dropped);
  for (const Door& door : doors_) {
    EXPECT_EQ(times_said(door, "it did not say who it is while others waited"), 1U);
    EXPECT_EQ(times_said(door, "it did not say who it is within 5 s"), 1U) << job_->printed();
  }
  expect_open_files_again(before);
  expect_a_good_end();
}

TEST_F(StrangersTest, TenThousandConnectionsTakeNeitherDescriptorsNorLines) {
  begin({.max_descriptors = 512});
  std::vector<std::uint16_t> ports;
  for (const Door& each : doors_) ports.push_back(each.port);
  const std::vector<std::size_t> before = num_open_files();
  std::size_t most = 0;
  std::size_t turn = 0;
  const FloodCounts counts = flood(
      {.ports = ports, .count = 10000, .at_once = 1200, .stay = std::chrono::seconds(2)}, [&] {
        if (++turn % 16 == 0) most = std::max(most, open_files_of(job_->pid(0)).size());
        return false;
      });
  EXPECT_EQ(counts.connected, 10000U);
  EXPECT_GT(most, before[0]);
  EXPECT_LE(most, before[0] + 2 * Reception::kPlaces);
  expect_going_on();
  for (const Door& door : doors_) {
    EXPECT_GE(times_said(door, ""), 2U);
    EXPECT_LE(times_said(door, ""), 5U) << job_->printed(door.rank);
  }
  EXPECT_LE(count_of("\n", job_->printed()), 40U) << job_->printed();
  expect_open_files_again(before);
  expect_a_good_end();
}

TEST_F(StrangersTest, LargeFramesTakeNoMemory) {
  begin();
  std::vector<std::size_t> before;
  for (int rank = 0; rank < 3; ++rank) before.push_back(peak_bytes_of(job_->pid(rank)));
  std::size_t said = 0;
  for (const Door& door : doors_) {
    std::vector<Caller> callers;
    for (int i = 0; i < 200; ++i) {
      callers.emplace_back(Where{.port = door.port});
      // More than any frame may have, the most that a member's may have, the most that a stranger's may have but for a byte.
      const std::uint32_t size = i % 3 == 0       ? 0xFFFFFFFFU
                                 : i % 3 == 1     ? 64U << 20U
                                 : door.is_chiefs ? 4096U
                                                  : 64U << 10U;
      std::string head;
      for (int byte = 0; byte < 4; ++byte) head.push_back(static_cast<char>(size >> (8 * byte)));
      callers.back().say(head);
      said += callers.back().say(std::string(std::min<std::size_t>(size - 1, 4 * kMiB), 'x'));
    }
  }
  EXPECT_GT(said, 8 * kMiB);
  expect_going_on();
  if (!testing::kIsSanitized) {  // which keep what is freed
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_LT(peak_bytes_of(job_->pid(rank)), before[static_cast<std::size_t>(rank)] + 32 * kMiB);
    }
  }
  expect_a_good_end();
}

TEST_F(StrangersTest, AtTheTransportsDoorWhileMembersMeet) {
  Job job({.is_last_late = true});
  // The last one holds the others up where they connect to it; only then do they listen to strangers.
  std::vector<std::uint16_t> transports;
  ASSERT_TRUE(Job::await([&] {
    transports.clear();
    for (int rank = 0; rank < 2; ++rank) {
      for (const std::uint16_t port : doors_of(job.pid(rank))) {
        const Caller caller({.port = port});
        if (!caller.is_connected()) continue;
        pollfd polled{caller.descriptor(), POLLIN, 0};
        char magic[8] = {};
        if (::poll(&polled, 1, 100) == 1 &&
            ::recv(caller.descriptor(), magic, sizeof magic, MSG_PEEK) == 8 &&
            std::string(magic, 8) == "xdevtcp3") {
          transports.push_back(port);
        }
      }
    }
    return transports.size() == 2;
  })) << job.printed();
  for (const std::uint16_t port : transports) {
    for (int i = 0; i < 20; ++i) {
      const Caller noise({.port = port});
      noise.say(std::string(200, static_cast<char>('a' + i)));
      EXPECT_TRUE(noise.hear_all().has_value());
      const Caller short_one({.port = port});
      short_one.say("GET / HTTP/1.1\r\n\r\n");
      ::shutdown(short_one.descriptor(), SHUT_WR);
      EXPECT_TRUE(short_one.hear_all().has_value());
    }
    std::vector<Caller> silent;
    for (int i = 0; i < 200; ++i) silent.emplace_back(Where{.port = port});
    for (const Caller& each : silent) EXPECT_TRUE(each.hear_all().has_value());
  }
  for (int rank = 0; rank < 2; ++rank) {
    const std::string door =
        "rank " + std::to_string(rank) + "'s transport refused a connection from 127.0.0.1 (port ";
    EXPECT_EQ(count_of(door, job.printed(rank)), 4U) << job.printed(rank);
    EXPECT_EQ(count_of("): something else speaks there", job.printed(rank)), 1U);
    EXPECT_EQ(count_of("): it did not say who it is\n", job.printed(rank)), 1U);
    EXPECT_EQ(count_of("): it did not say who it is while others waited", job.printed(rank)), 1U);
    EXPECT_EQ(count_of("): it did not say who it is in time", job.printed(rank)), 1U);
  }
  EXPECT_EQ(job.rounds(0), 0U);
  job.tell("go");
  EXPECT_TRUE(job.await_rounds(3)) << job.printed();
  EXPECT_EQ(job.finish(), all_well(3)) << job.printed();
}

TEST_F(StrangersTest, SurvivorsMeetWhileStrangersKnock) {
  begin({.rebuilds = true});
  std::vector<std::uint16_t> ports;
  for (const Door& each : doors_) {
    if (each.rank != 0) ports.push_back(each.port);
  }
  // More than there are places for, all the time, which stay for as long as they are let.
  Crowd crowd(ports, 600);
  job_->kill(0);
  EXPECT_TRUE(Job::await([&] { return job_->epoch(1) == 2 && job_->epoch(2) == 2; }))
      << job_->printed();
  expect_going_on();
  EXPECT_TRUE(Job::await([&] { return crowd.num_dropped() > 600; })) << crowd.num_dropped();
  EXPECT_EQ(job_->finish(), all_well(3)) << job_->printed();
}

}  // namespace
}  // namespace crossdevice::strangers
