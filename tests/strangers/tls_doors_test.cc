// SPDX-License-Identifier: Apache-2.0
/// Strangers at the doors of a job that encrypts: those who never get as far as to say anything that it understands. Of those who do, as who knows the secret
/// or has learnt its key, strangers_test.cc speaks.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "comm/detail/reception.h"
#include "comm/detail/tls_channel.h"
#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"
#include "strangers/relay.h"
#include "strangers/strangers_fixture.h"
#include "strangers/tls_words.h"
#include "support/sanitizers.h"
#include "support/worker_processes.h"

namespace crossdevice::strangers {
namespace {

using detail::kTlsOnlyHere;
using detail::kTlsOnlyThere;
using detail::kTlsPreamble;
using detail::Nonce;
using detail::Reception;
using testing::all_well;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOtherSecret = "it does not hold the secret of this job";
constexpr std::size_t kMiB = std::size_t{1} << 20;
/// A record that says why a connection ends.
constexpr char kAlert = '\x15';
constexpr std::size_t kAlertBytes = 7;
/// The preamble, and what a listener says of a handshake before it knows who is there.
constexpr std::size_t kMostOfHandshake = 400;

class TlsDoorsTest : public StrangersTest {
 protected:
  TlsDoorsTest() : StrangersTest(/*is_encrypted=*/true) {}
};

/// That a door has said nothing but what it says to everybody, and perhaps why not more.
void expect_told_nothing(const std::optional<std::string>& heard) {
  ASSERT_TRUE(heard.has_value()) << "the connection goes on";
  ASSERT_TRUE(heard->starts_with(kTlsPreamble)) << *heard;
  const std::string more = heard->substr(kTlsPreamble.size());
  if (more.empty()) return;
  EXPECT_EQ(more[0], kAlert);
  EXPECT_EQ(more.size(), kAlertBytes);
}

TEST_F(TlsDoorsTest, WhoHasAnotherKeyOrNoneIsRefusedAtEveryDoorAndNamedOnce) {
  begin();
  const std::vector<std::size_t> before = num_open_files();
  for (const Door& door : doors_) {
    struct Stranger {
      std::string from;
      std::string words;
      std::string refusal;
    };
    const std::vector<Stranger> strangers = {
        {"127.0.0.11", tls_hello_of("another"), kOtherSecret},
        {"127.0.0.12", tls_hello_of("what nobody else know"), kOtherSecret},
        {"127.0.0.13", tls_hello_without_key(), "it did not say who it is: TLS: "},
        {"127.0.0.14", std::string("\x16\x03\x01\0\x09", 5) + "no hello.",
         "it did not say who it is: it begins TLS as nobody of this job does"},
        {"127.0.0.15", words_of_stranger(1), kTlsOnlyHere},
        {"127.0.0.16", words_for(door, Nonce{}, kJobSecret), kTlsOnlyHere}};
    for (const Stranger& each : strangers) {
      for (int i = 0; i < 3; ++i) {
        const Caller caller({.port = door.port, .from = each.from});
        caller.say(each.words);
        expect_told_nothing(caller.hear_all());
      }
      EXPECT_EQ(times_said(door, each.refusal, each.from), 1U) << job_->printed(door.rank);
      EXPECT_EQ(times_said(door, "", each.from), 1U) << job_->printed(door.rank);
    }
    // The same to its end, as a client goes on that means it.
    const Caller caller({.port = door.port, .tls_secret = "another"});
    EXPECT_EQ(caller.say(words_for(door, Nonce{}, "another")), 0U);
    EXPECT_FALSE(caller.hear_frame().has_value());
    // It is told before it is logged, and does not wait for the end.
    EXPECT_TRUE(Job::await([&] { return times_said(door, kOtherSecret) != 0; }));
    EXPECT_EQ(times_said(door, ""), 1U) << job_->printed(door.rank);
  }
  expect_going_on();
  expect_open_files_again(before);
  expect_a_good_end();
}

TEST_F(TlsDoorsTest, ARecordedHandshakeIsRefused) {
  Relay relay;
  JobOptions options;
  options.chief_address_of[1] = relay.address();
  options.variables = {"CROSSDEVICE_TLS=1"};
  job_ = std::make_unique<Job>(options);
  relay.carry_to(job_->chief_port());
  ASSERT_TRUE(job_->await_rounds(3)) << job_->printed();
  find_doors(3);
  const std::string recorded = relay.said_by_caller();
  ASSERT_TRUE(detail::is_tls(recorded));
  // The hello is good for any connection, what follows it for one alone: it is made with a key of that one.
  constexpr std::size_t kHeadBytes = 5;
  const auto byte = [&](std::size_t i) {
    return std::size_t{static_cast<unsigned char>(recorded[i])};
  };
  const std::string hello = recorded.substr(0, kHeadBytes + (byte(3) << 8U | byte(4)));
  ASSERT_LT(hello.size(), recorded.size());
  const std::string said_by_chief = relay.said_by_listener();
  for (const Door& door : doors_) {
    for (const std::string& replayed : {recorded, hello, said_by_chief}) {
      for (int i = 0; i < 3; ++i) {
        const Caller caller({.port = door.port});
        caller.say(replayed);
        ::shutdown(caller.descriptor(), SHUT_WR);
        const std::optional<std::string> heard = caller.hear_all();
        ASSERT_TRUE(heard.has_value());
        EXPECT_TRUE(heard->starts_with(kTlsPreamble));
        EXPECT_LT(heard->size(), kMostOfHandshake);
      }
    }
    EXPECT_EQ(times_said(door, "it did not say who it is: "), 1U) << job_->printed(door.rank);
    EXPECT_EQ(times_said(door, kTlsOnlyHere), 1U) << job_->printed(door.rank);
    EXPECT_EQ(times_said(door, ""), 2U) << job_->printed(door.rank);
  }
  expect_going_on();
  expect_a_good_end();
}

TEST_F(TlsDoorsTest, WhoBeginsAndStopsIsBoundedAndDroppedByADeadline) {
  begin();
  const std::vector<std::size_t> before = num_open_files();
  std::vector<std::size_t> peaks;
  peaks.reserve(3);
  for (int rank = 0; rank < 3; ++rank) peaks.push_back(peak_bytes_of(job_->pid(rank)));
  // As far as a hello gets that somebody has recorded: the door answers it, and waits for the rest.
  const std::string hello = tls_hello_of(kJobSecret);
  std::vector<Caller> callers;
  for (int i = 0; i < 300; ++i) {
    for (const Door& door : doors_) {
      callers.emplace_back(Where{.port = door.port});
      callers.back().say(i % 3 == 0 ? hello.substr(0, hello.size() / 2) : hello);
    }
  }
  const std::vector<std::size_t> now = num_open_files();
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    EXPECT_LE(now[rank], before[rank] + (rank == 0 ? 2 : 1) * Reception::kPlaces) << rank;
  }
  expect_going_on();
  EXPECT_TRUE(Job::await([&] {
    return std::all_of(callers.begin(), callers.end(),
                       [](const Caller& each) { return each.has_ended(); });
  }));
  for (const Door& door : doors_) {
    EXPECT_EQ(times_said(door, "it did not say who it is while others waited"), 1U);
    EXPECT_EQ(times_said(door, "it did not say who it is within 5 s"), 1U) << job_->printed();
    EXPECT_EQ(times_said(door, ""), 2U) << job_->printed(door.rank);
  }
  expect_open_files_again(before);
  if (!testing::kIsSanitized) {  // which keep what is freed
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_LT(peak_bytes_of(job_->pid(rank)), peaks[static_cast<std::size_t>(rank)] + 32 * kMiB);
    }
  }
  expect_a_good_end();
}

TEST_F(TlsDoorsTest, ProcessesOfOtherJobsAreRefused) {
  begin();
  const std::string chief = "127.0.0.1:" + std::to_string(job_->chief_port());
  struct Other {
    std::string secret;
    bool is_encrypted;
    std::string told;  // to its workers
    std::unique_ptr<Job> job{};
  };
  std::vector<Other> others;
  others.push_back({"", false, kTlsOnlyThere});
  others.push_back({kJobSecret, false, kTlsOnlyThere});
  others.push_back({"what others know too", true, "secret"});
  others.push_back({kJobSecret, true, "holds already"});
  for (Other& each : others) {
    JobOptions options{.secret = each.secret, .join_seconds = 3};
    if (each.is_encrypted) options.variables = {"CROSSDEVICE_TLS=1"};
    options.chief_address_of = {{1, chief}, {2, chief}};
    each.job = std::make_unique<Job>(options);
  }
  for (const Other& each : others) {
    EXPECT_EQ(each.job->wait(), std::vector<int>(3, 3)) << each.job->printed();
    EXPECT_THAT(each.job->printed(0), HasSubstr("2 of 3 workers did not come in time"));
    for (const int rank : {1, 2}) {
      EXPECT_THAT(each.job->printed(rank), HasSubstr(each.told));
      EXPECT_THAT(each.job->printed(rank), Not(HasSubstr(kJobSecret)));
    }
  }
  const std::string refusal = "the chief (rank 0) refused a connection from 127.0.0.1 (port ";
  EXPECT_EQ(count_of(refusal, job_->printed(0)), 4U) << job_->printed(0);
  for (const char* text :
       {kTlsOnlyHere, kOtherSecret, "claims rank 1, which", "claims rank 2, which"}) {
    EXPECT_EQ(count_of(text, job_->printed(0)), 1U) << job_->printed(0);
  }
  expect_going_on();
  expect_a_good_end();
}

}  // namespace
}  // namespace crossdevice::strangers
