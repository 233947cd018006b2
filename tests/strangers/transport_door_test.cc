// SPDX-License-Identifier: Apache-2.0
/// Strangers at the transport's door of a real job, which is open to them while its members connect.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/detail/tcp_greeting.h"
#include "comm/detail/tls_channel.h"
#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"
#include "strangers/relay.h"
#include "strangers/tls_words.h"
#include "support/sanitizers.h"
#include "support/worker_processes.h"

namespace crossdevice::strangers {
namespace {

using detail::Nonce;
using testing::all_well;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;
/// Strangers that are looked at, at a time; what else waits does so in the kernel.
constexpr std::size_t kPlaces = 128;
/// When a door has said its first words, or somebody else's that has none.
constexpr std::chrono::milliseconds kSoon{500};

/// A job of three, the last of which does not connect before it is told to, so that the first two listen to whoever comes.
class TransportDoorTest : public ::testing::Test {
 protected:
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets any
  explicit TransportDoorTest(bool is_encrypted = std::getenv("CROSSDEVICE_TLS") != nullptr)
      : is_encrypted_(is_encrypted) {}

  void SetUp() override {
    JobOptions options{.is_last_late = true};
    if (is_encrypted_) options.variables = {"CROSSDEVICE_TLS=1"};
    job_ = std::make_unique<Job>(options);
    ASSERT_TRUE(Job::await([&] { return find_doors(); })) << job_->printed();
  }

  /// One of each of the first two. With TLS all doors say the same before a handshake, and what they are after it.
  bool find_doors() {
    doors_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      if (job_->cluster_id(rank) == 0) return false;
      for (const std::uint16_t port : doors_of(job_->pid(rank))) {
        if (port != job_->chief_port() && is_transports(port)) doors_.push_back(port);
      }
    }
    return doors_.size() == 2;
  }
  [[nodiscard]] bool is_transports(std::uint16_t port) const {
    const Caller caller(as_member(port));
    return caller.is_connected() &&
           caller.hear(detail::kGreetingMagicBytes, kSoon) == detail::kTcpGreeting;
  }
  /// Where somebody calls who can begin as a member does: it says the rest inside TLS where the job does.
  [[nodiscard]] Where as_member(std::uint16_t port) const {
    return {.port = port, .tls_secret = is_encrypted_ ? kJobSecret : ""};
  }

  [[nodiscard]] static Nonce challenge_of(const Caller& caller) {
    const std::optional<std::string> heard = caller.hear(detail::kChallengeBytes);
    if (!heard.has_value()) {
      ADD_FAILURE() << "there is no challenge";
      return {};
    }
    detail::ChallengeBytes bytes{};
    std::copy(heard->begin(), heard->end(), bytes.begin());
    return detail::decode_challenge(bytes);
  }
  [[nodiscard]] std::string hello(const Nonce& challenge, const std::string& secret, int from,
                                  int to) const {
    return hello(challenge, secret, {job_->cluster_id(0), from, to});
  }
  [[nodiscard]] static std::string hello(const Nonce& challenge, const std::string& secret,
                                         const detail::TcpPair& pair) {
    const detail::HelloBytes bytes = detail::encode_hello(secret, pair, challenge, Nonce{});
    return {bytes.data(), bytes.size()};
  }

  /// A client's hello of 4092 bytes, as far as anybody gets who says it slowly.
  [[nodiscard]] static std::string first_words_of_tls() {
    constexpr std::string_view kHead("\x16\x03\x01\x10\0\x01\0\x0f\xfc\x03\x03", 11);
    return std::string(kHead) + std::string(100, 'x');
  }

  /// How often the door of a rank has said `text` of somebody from an address.
  [[nodiscard]] std::size_t times_said(int rank, const std::string& text,
                                       const std::string& from = "127.0.0.1") const {
    const std::string refusal = "rank " + std::to_string(rank) +
                                "'s transport refused a connection from " + from + " (port ";
    const std::string all = job_->printed(rank);
    std::size_t times = 0;
    for (std::size_t at = all.find(refusal); at != std::string::npos;
         at = all.find(refusal, at + 1)) {
      times += count_of("): " + text, all.substr(at, all.find('\n', at) - at));
    }
    return times;
  }
  [[nodiscard]] std::uint16_t door_of(int rank) const {
    return doors_[static_cast<std::size_t>(rank)];
  }

  /// The members meet, and reduce with exact values.
  void expect_a_good_end() {
    EXPECT_EQ(job_->rounds(0), 0U);
    job_->tell("go");
    EXPECT_TRUE(job_->await_rounds(3)) << job_->printed();
    EXPECT_EQ(job_->finish(), all_well(3)) << job_->printed();
    EXPECT_THAT(job_->printed(), Not(HasSubstr(kJobSecret)));
  }

  const bool is_encrypted_;
  std::unique_ptr<Job> job_;
  std::vector<std::uint16_t> doors_;  // by rank
};

TEST_F(TransportDoorTest, WhoHasNoProofIsRefusedAndNamedOnce) {
  for (const int rank : {0, 1}) {
    for (int i = 0; i < 5; ++i) {
      for (const char* secret : {"", "another", "what nobody else know"}) {
        const Caller caller(as_member(door_of(rank)));
        caller.say(hello(challenge_of(caller), secret, 0, rank));
        EXPECT_EQ(caller.hear_all(), "");
      }
      const Caller without_waiting(as_member(door_of(rank)));
      without_waiting.say(hello(Nonce{}, kJobSecret, 0, rank));
      EXPECT_TRUE(without_waiting.hear_all().has_value());
    }
    EXPECT_EQ(times_said(rank, "it does not hold the secret of this job"), 1U);
    EXPECT_EQ(times_said(rank, ""), 1U) << job_->printed(rank);
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, AReplayedHelloIsRefused) {
  for (const int rank : {0, 1}) {
    // Another rank's, so that the one that it was made for is not welcomed as a member would be.
    const Caller first(as_member(door_of(rank)));
    const std::string recorded = hello(challenge_of(first), kJobSecret, 2, rank);
    for (int i = 0; i < 3; ++i) {
      const Caller second(as_member(door_of(rank)));
      (void)challenge_of(second);
      second.say(recorded);
      EXPECT_EQ(second.hear_all(), "");
    }
    EXPECT_EQ(times_said(rank, "it does not hold the secret of this job"), 1U);
    // On the connection that it was made for it is believed: what is refused then is something else.
    first.say(recorded);
    EXPECT_EQ(first.hear_all(), "");
    EXPECT_EQ(times_said(rank, "no such rank dials"), 1U) << job_->printed(rank);
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, RanksOutOfRangeAndMembersOfOtherJobsAreRefused) {
  for (const int rank : {0, 1}) {
    const std::uint64_t cluster = job_->cluster_id(rank);
    const auto say = [&](const detail::TcpPair& pair) {
      const Caller caller(as_member(door_of(rank)));
      caller.say(hello(challenge_of(caller), kJobSecret, pair));
      EXPECT_EQ(caller.hear_all(), "");
    };
    for (const int from : {3, -1, 2147483647, -2147483647 - 1, rank, rank + 1}) {
      say({cluster, from, rank});
    }
    EXPECT_EQ(times_said(rank, "no such rank dials"), 1U) << job_->printed(rank);
    say({cluster + 1, 0, rank});
    say({cluster, 0, 2});
    say({cluster, 0, -1});
    EXPECT_EQ(times_said(rank, "it looks for somebody else"), 1U) << job_->printed(rank);
    EXPECT_EQ(times_said(rank, ""), 2U) << job_->printed(rank);
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, WhatIsLongerThanAHelloTakesNoMemory) {
  std::vector<std::size_t> before;
  for (const int rank : {0, 1}) before.push_back(peak_bytes_of(job_->pid(rank)));
  const std::string much(4 * kMiB, 'x');
  for (const int rank : {0, 1}) {
    std::vector<Caller> callers;
    for (int i = 0; i < 200; ++i) {
      callers.emplace_back(i % 3 == 2 ? as_member(door_of(rank)) : Where{.port = door_of(rank)});
      // Noise from the first byte, a length that no frame has, or a hello without a proof with more behind it.
      if (i % 3 == 1) callers.back().say("\xff\xff\xff\x7f");
      if (i % 3 == 2) callers.back().say(hello(Nonce{}, "another", 0, rank));
      callers.back().say(much);
    }
    for (const Caller& each : callers) EXPECT_TRUE(each.hear_all().has_value());
  }
  if (!testing::kIsSanitized) {  // which keep what is freed
    for (const int rank : {0, 1}) {
      EXPECT_LT(peak_bytes_of(job_->pid(rank)), before[static_cast<std::size_t>(rank)] + 16 * kMiB);
    }
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, WhoSaysAByteNowAndThenIsDroppedByADeadline) {
  constexpr std::size_t kCallersOfADoor =
      60;  // fewer than there are places for, so that nobody makes room
  std::vector<Caller> callers;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < doors_.size() * kCallersOfADoor; ++i) {
    callers.emplace_back(Where{.port = doors_[i % doors_.size()]});
    words.push_back(is_encrypted_ ? first_words_of_tls() : hello(Nonce{}, "another", 0, 1));
  }
  std::size_t turn = 0;
  const bool are_dropped = Job::await([&] {
    constexpr std::size_t kTurnsOfAByte = 20;
    if (turn++ % kTurnsOfAByte == 0) {
      const std::size_t at = turn / kTurnsOfAByte;
      for (std::size_t i = 0; i < callers.size(); ++i) {
        if (at < words[i].size()) callers[i].say(std::string_view(words[i]).substr(at, 1));
      }
    }
    return std::all_of(callers.begin(), callers.end(),
                       [](const Caller& each) { return each.has_ended(); });
  });
  EXPECT_TRUE(are_dropped);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(times_said(rank, "it did not say who it is in time"), 1U) << job_->printed(rank);
    EXPECT_EQ(times_said(rank, ""), 1U) << job_->printed(rank);
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, TenThousandConnectionsTakeNeitherDescriptorsNorLines) {
  std::vector<std::size_t> before;
  for (const int rank : {0, 1}) before.push_back(open_files_of(job_->pid(rank)).size());
  std::vector<std::size_t> most = before;
  std::size_t turn = 0;
  const FloodCounts counts = flood(
      {.ports = doors_, .count = 10000, .at_once = 1200, .stay = std::chrono::seconds(2)}, [&] {
        if (++turn % 16 != 0) return false;
        for (std::size_t rank = 0; rank < most.size(); ++rank) {
          most[rank] =
              std::max(most[rank], open_files_of(job_->pid(static_cast<int>(rank))).size());
        }
        return false;
      });
  EXPECT_EQ(counts.connected, 10000U);
  for (std::size_t rank = 0; rank < most.size(); ++rank) {
    EXPECT_GT(most[rank], before[rank]);
    EXPECT_LE(most[rank], before[rank] + kPlaces + 2);
    EXPECT_GE(times_said(static_cast<int>(rank), ""), 2U);
    EXPECT_LE(times_said(static_cast<int>(rank), ""), 5U) << job_->printed();
  }
  expect_a_good_end();
}

class TlsTransportDoorTest : public TransportDoorTest {
 protected:
  TlsTransportDoorTest() : TransportDoorTest(/*is_encrypted=*/true) {}
};

TEST_F(TlsTransportDoorTest, WhoHasAnotherKeyOrNoneIsRefusedAndNamedOnce) {
  struct Stranger {
    std::string from;
    std::string words;
    std::string refusal;
  };
  for (const int rank : {0, 1}) {
    const std::vector<Stranger> strangers = {
        {"127.0.0.11", tls_hello_of("another"), "it does not hold the secret of this job"},
        {"127.0.0.12", tls_hello_without_key(), "TLS: "},
        {"127.0.0.13", std::string("\x16\x03\x01\0\x09", 5) + "no hello.",
         "it begins TLS as nobody of this job does"},
        {"127.0.0.14", hello(Nonce{}, kJobSecret, 0, rank), detail::kTlsOnlyHere},
        // One that was recorded, and what was not made for this connection.
        {"127.0.0.15", tls_hello_of(kJobSecret) + tls_hello_of(kJobSecret), "TLS: "}};
    for (const Stranger& each : strangers) {
      for (int i = 0; i < 3; ++i) {
        const Caller caller({.port = door_of(rank), .from = each.from});
        caller.say(each.words);
        const std::optional<std::string> heard = caller.hear_all();
        ASSERT_TRUE(heard.has_value());
        EXPECT_TRUE(heard->starts_with(detail::kTlsPreamble));
        EXPECT_EQ(heard->find(detail::kTcpGreeting), std::string::npos);
      }
      EXPECT_EQ(times_said(rank, each.refusal, each.from), 1U) << job_->printed(rank);
      EXPECT_EQ(times_said(rank, "", each.from), 1U) << job_->printed(rank);
    }
    const Caller caller({.port = door_of(rank), .tls_secret = "another"});
    EXPECT_EQ(caller.say(hello(Nonce{}, "another", 0, rank)), 0U);
    EXPECT_EQ(caller.hear_all(), "");
    // It is told before it is logged, and does not wait for the end.
    EXPECT_TRUE(Job::await(
        [&] { return times_said(rank, "it does not hold the secret of this job") != 0; }));
    EXPECT_EQ(times_said(rank, ""), 1U) << job_->printed(rank);
  }
  expect_a_good_end();
}

TEST_F(TransportDoorTest, MembersMeetWhileStrangersKnock) {
  Crowd crowd(doors_, 600);
  expect_a_good_end();
}

}  // namespace
}  // namespace crossdevice::strangers
