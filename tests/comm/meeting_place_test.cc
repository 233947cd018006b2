// SPDX-License-Identifier: Apache-2.0
// Workers are threads with a meeting place each; whoever dies lets go of its own. tests/comm/rebuild_test.cc has real processes.
#include "comm/detail/meeting_place.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

#include "comm/detail/host_port.h"
#include "comm/detail/tls_channel.h"
#include "support/frame_speaker.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using testing::FrameSpeaker;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SpeakersAddress;

/// What became of a worker's call.
struct Outcome {
  Meeting meeting;
  StatusCode code = StatusCode::CANCELLED;  // while there is no error
  std::string error;
  std::vector<int> culprits;
};

/// With CROSSDEVICE_TLS=1 all of this runs over TLS.
std::shared_ptr<const TlsKey> tls_key(const std::string& secret) {
  return environment().tls ? TlsKey::make(secret) : nullptr;
}

class Job {
 public:
  /// `addresses`: where those ranks are said to be, in place of where they are.
  explicit Job(int size, const std::string& secret = "secret",
               const std::string& chief_host = "127.0.0.1",
               const std::map<int, std::string>& addresses = {}) {
    std::vector<MemberInfo> everyone;
    everyone.reserve(static_cast<std::size_t>(size));
    places_.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      places_.push_back(MeetingPlace::open({.chief_host = chief_host,
                                            .chief_port = 0,
                                            .secret = secret,
                                            .tls = tls_key(secret),
                                            .heartbeat_timeout = std::chrono::seconds(5)}));
      everyone.push_back({.rank = rank, .host = "h", .host_id = "i", .pid = 100 + rank});
      everyone.back().addresses = places_.back()->addresses();
      if (addresses.contains(rank)) everyone.back().addresses = {addresses.at(rank)};
    }
    for (int rank = 0; rank < size; ++rank) place(rank).begin(4711, rank, everyone);
  }
  MeetingPlace& place(int rank) { return *places_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) { places_[static_cast<std::size_t>(rank)].reset(); }

  Outcome meet(int rank, const MeetingRequest& request) {
    Outcome outcome;
    try {
      outcome.meeting = place(rank).meet(request);
    } catch (const OpError& error) {
      outcome.code = error.code();
      outcome.error = error.what();
      for (const RankInfo& each : error.culprits()) outcome.culprits.push_back(each.rank);
    }
    return outcome;
  }
  /// All of `ranks` at once.
  std::vector<Outcome> meet(const std::vector<int>& ranks, const MeetingRequest& request) {
    std::vector<Outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;
    threads.reserve(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        MeetingRequest mine = request;
        mine.completed.sequence += static_cast<std::uint64_t>(ranks[i]);
        outcomes[i] = meet(ranks[i], mine);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

 private:
  std::vector<std::shared_ptr<MeetingPlace>> places_;
};

MeetingRequest request_of(std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  MeetingRequest request;
  request.call = "rebuild(ONLY)";
  request.patience = std::chrono::seconds(30);
  request.deadline = Deadline::after(limit);
  request.completed = {1, 100};
  return request;
}

/// That all have met in the same epoch, whose chief is the first of `members`.
void expect_met(const std::vector<Outcome>& outcomes, const std::vector<int>& ranks,
                const std::vector<int>& members, std::uint64_t number) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(outcomes[i].error, "") << "rank " << ranks[i];
    EXPECT_EQ(outcomes[i].meeting.epoch, (Epoch{number, members})) << "rank " << ranks[i];
    EXPECT_EQ(outcomes[i].meeting.completed,
              (Completed{1, 100 + static_cast<std::uint64_t>(members[0])}));
    EXPECT_EQ(outcomes[i].meeting.chief_address, outcomes[0].meeting.chief_address);
    EXPECT_EQ(outcomes[i].meeting.listener != nullptr, ranks[i] == members[0]);
  }
}

TEST(MeetingPlaceTest, AllMeetAgainAndAgain) {
  for (const int size : {2, 3, 5, 8}) {
    Job job(size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (std::uint64_t epoch = 2; epoch < 6; ++epoch) {
      MeetingRequest request = request_of();
      request.needs_all = epoch % 2 == 0;
      expect_met(job.meet(ranks, request), ranks, ranks, epoch);
    }
  }
}

TEST(MeetingPlaceTest, SixtyFourMeetWithoutThoseThatAreGone) {
  Job job(64);
  std::vector<int> ranks;
  ranks.reserve(64);
  for (int rank = 0; rank < 64; ++rank) {
    if (rank % 5 == 0) {
      job.kill(rank);
    } else {
      ranks.push_back(rank);
    }
  }
  expect_met(job.meet(ranks, request_of()), ranks, ranks, 2);
}

TEST(MeetingPlaceTest, WhereverTheChiefListens) {
  for (const char* const host : {"localhost", "::1", "some-host"}) {
    std::optional<Job> job;
    try {
      job.emplace(3, "secret", host);
    } catch (const UnavailableError& error) {
      GTEST_SKIP() << error.what();  // a machine without IPv6
    }
    expect_met(job->meet({0, 1, 2}, request_of()), {0, 1, 2}, {0, 1, 2}, 2);
    job->kill(0);
    expect_met(job->meet({1, 2}, request_of()), {1, 2}, {1, 2}, 3);
  }
}

TEST(MeetingPlaceTest, TheLowestThatLivesIsTheChief) {
  Job job(5);
  job.kill(0);
  job.kill(3);
  MeetingRequest request = request_of();
  request.lost = {0, 3};
  expect_met(job.meet({1, 2, 4}, request), {1, 2, 4}, {1, 2, 4}, 2);
  // Nobody has to know who is gone: a process that has ended answers by not listening.
  job.kill(1);
  expect_met(job.meet({2, 4}, request_of()), {2, 4}, {2, 4}, 3);
}

TEST(MeetingPlaceTest, AMinorityIsRefusedUnlessItIsAskedFor) {
  Job job(5);
  for (const int rank : {0, 2, 4}) job.kill(rank);
  for (const Outcome& each : job.meet({1, 3}, request_of())) {
    EXPECT_EQ(each.code, StatusCode::UNAVAILABLE);
    EXPECT_THAT(each.error, HasSubstr("2 of 5 workers are left, 3 are needed; gone: rank 0"));
    EXPECT_THAT(each.culprits, ElementsAre(0, 2, 4));
  }
  MeetingRequest request = request_of();
  request.min_workers = 2;
  expect_met(job.meet({1, 3}, request), {1, 3}, {1, 3}, 2);
  job.kill(1);
  request.min_workers = 1;
  expect_met(job.meet(std::vector<int>{3}, request), {3}, {3}, 3);
}

TEST(MeetingPlaceTest, WhoLivesButDoesNotComeIsNamed) {
  Job job(3);
  MeetingRequest request = request_of(std::chrono::seconds(3));
  request.names = {{.rank = 0}, {.rank = 1}, {.rank = 2, .host = "b", .pid = 4711}};
  for (const bool needs_all : {true, false}) {
    request.needs_all = needs_all;
    request.deadline = Deadline::after(std::chrono::seconds(3));
    for (const Outcome& each : job.meet({0, 1}, request)) {
      EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED);
      EXPECT_THAT(each.error, HasSubstr("2 of 3 workers have come"));
      EXPECT_THAT(each.error, HasSubstr("waiting for rank 2 (host b, pid 4711)"));
      EXPECT_THAT(each.culprits, ElementsAre(2));
    }
  }
  expect_met(job.meet({0, 1, 2}, request_of()), {0, 1, 2}, {0, 1, 2}, 2);  // nothing is lost
}

TEST(MeetingPlaceTest, WhoIsLateIsLeftOutAndToldSo) {
  for (const int late : {0, 1, 2}) {
    Job job(3);
    std::atomic<std::uint64_t> told{0};
    const std::shared_ptr<void> listening =
        job.place(late).listen([&](const Epoch& epoch, bool is_member) {
          if (!is_member) told.store(epoch.number);
        });
    std::vector<int> others;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != late) others.push_back(rank);
    }
    MeetingRequest request = request_of();
    request.patience = std::chrono::seconds(2);
    expect_met(job.meet(others, request), others, others, 2);
    const Deadline limit = Deadline::after(std::chrono::seconds(30));
    while (told.load() != 2 && !limit.has_passed()) std::this_thread::yield();
    EXPECT_EQ(told.load(), 2U);  // without asking
    const Outcome outcome = job.meet(late, request_of());
    EXPECT_EQ(outcome.code, StatusCode::ABORTED);
    EXPECT_THAT(outcome.error, HasSubstr("epoch 2 has begun with 2 workers without it"));
    expect_met(job.meet(others, request_of()), others, others, 3);  // and is not missed
  }
}

TEST(MeetingPlaceTest, WhoIsMissedForLongIsTold) {
  Job job(3);
  std::atomic<int> caller{-1};
  std::atomic<bool> is_called_as_it_was{true};
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> waited_ms{0};
  std::vector<std::shared_ptr<void>> listening;
  for (const int rank : {0, 2}) {
    listening.push_back(
        job.place(rank).listen([](const Epoch&, bool) {},
                               [&](const Epoch& epoch, int of_job, const std::string& call) {
                                 if (epoch.number != 1 || call != "rebuild(ONLY)")
                                   is_called_as_it_was = false;
                                 if (caller.exchange(of_job) >= 0) return;
                                 waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                                 std::chrono::steady_clock::now() - begin)
                                                 .count();
                               }));
  }
  Outcome one;
  std::thread first([&] { one = job.meet(1, request_of()); });
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  while (waited_ms.load() == 0 && !limit.has_passed()) std::this_thread::yield();
  EXPECT_EQ(caller.load(), 1);
  EXPECT_GE(waited_ms.load(), 900);  // what is about to complete may
  EXPECT_TRUE(is_called_as_it_was.load());
  const std::vector<Outcome> others = job.meet({0, 2}, request_of());
  first.join();
  expect_met({others[0], one, others[1]}, {0, 1, 2}, {0, 1, 2}, 2);
}

/// Sockets of this process that listen.
int num_listening() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) ++count;
  }
  return count;
}

TEST(MeetingPlaceTest, ACandidateListensBeforeItTakesAnybodyIn) {
  Job job(2);
  const int before = num_listening();
  Outcome zero;
  std::thread first([&] { zero = job.meet(0, request_of()); });
  const Deadline limit = Deadline::after(std::chrono::seconds(10));
  while (num_listening() == before && !limit.has_passed()) std::this_thread::yield();
  EXPECT_EQ(num_listening(), before + 1);  // although nobody has come yet
  const Outcome one = job.meet(1, request_of());
  first.join();
  expect_met({zero, one}, {0, 1}, {0, 1}, 2);
}

TEST(MeetingPlaceTest, ALowerRankThatComesLaterIsTheChiefAfterAll) {
  Job job(4);
  std::vector<Outcome> outcomes;
  std::thread others([&] { outcomes = job.meet({1, 2, 3}, request_of()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // they have found each other
  const Outcome first = job.meet(0, request_of());
  others.join();
  outcomes.insert(outcomes.begin(), first);
  expect_met(outcomes, {0, 1, 2, 3}, {0, 1, 2, 3}, 2);
}

TEST(MeetingPlaceTest, ACandidateThatDiesIsFollowedByTheNext) {
  Job job(4);
  std::vector<Outcome> outcomes;
  std::thread first([&] {
    MeetingRequest request = request_of(std::chrono::seconds(4));
    request.needs_all = true;
    request.call = "rebuild(ONLY)";
    (void)job.meet(0, request);  // gives up, as rank 3 does not come in time
    job.kill(0);
  });
  std::vector<int> others = {1, 2, 3};
  std::thread second([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    // Its candidate ends their calls with its own; they call again.
    outcomes = job.meet({1, 2}, request_of());
    for (const Outcome& each : outcomes) EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED);
  });
  first.join();
  second.join();
  expect_met(job.meet(others, request_of()), others, others, 2);
}

/// Of rank 8 and 9: each would wait a second for each of the others in turn, and for all of them again before it asks the other one.
TEST(MeetingPlaceTest, ManyThatAreSilentHoldNobodyUpForLong) {
  const std::vector<SpeakersAddress> silent(8);
  std::map<int, std::string> addresses;
  for (const SpeakersAddress& each : silent) {
    addresses.emplace(static_cast<int>(addresses.size()), each.text());
  }
  Job job(10, "secret", "127.0.0.1", addresses);
  MeetingRequest request = request_of(std::chrono::seconds(7));
  request.min_workers = 2;
  request.patience = std::chrono::milliseconds(100);
  expect_met(job.meet({8, 9}, request), {8, 9}, {8, 9}, 2);
}

/// Carries what is said to it to that port of loopback, but begins each time as late as whoever stands behind a crowd is heard.
class LateDoor {
 public:
  LateDoor(std::chrono::milliseconds late, const std::function<std::uint16_t()>& port)
      : thread_([this, late, port] {
          std::vector<std::thread> carriers;
          for (;;) {
            const int caller = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
            if (caller < 0) break;
            carriers.emplace_back([caller, late, port] {
              std::this_thread::sleep_for(late);
              carry_both_ways(caller, port());
            });
          }
          for (std::thread& each : carriers) each.join();
        }) {}
  ~LateDoor() {
    ::shutdown(listener_.descriptor(), SHUT_RDWR);
    thread_.join();
  }
  LateDoor(const LateDoor&) = delete;
  LateDoor& operator=(const LateDoor&) = delete;
  [[nodiscard]] std::string address() const { return listener_.address(); }

 private:
  static void carry_both_ways(int caller, std::uint16_t port) {
    const FrameSpeaker one(caller);
    const std::unique_ptr<FrameSpeaker> other = FrameSpeaker::dial(port);
    std::thread back([&] { other->carry_to(one); });
    one.carry_to(*other);
    back.join();
  }
  testing::LoopbackListener listener_{100};
  std::thread thread_;
};

/// Also where they have gone to another candidate meanwhile: nobody begins anew to wait.
TEST(MeetingPlaceTest, WhoIsHeardLateIsHeardAfterAll) {
  std::atomic<std::uint16_t> port{0};
  const LateDoor door(std::chrono::milliseconds(1500), [&] { return port.load(); });
  Job job(6, "secret", "127.0.0.1", {{0, door.address()}});
  port = parse_host_port(job.place(0).addresses()[0]).port;
  MeetingRequest request = request_of(std::chrono::seconds(7));
  request.needs_all = true;
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  expect_met(job.meet(all, request), all, all, 2);
}

TEST(MeetingPlaceTest, WhoHasEndedIsFound) {
  Job job(4);
  const auto find_gone = [&](int rank, const std::vector<int>& ranks) {
    return job.place(rank).find_gone(ranks,
                                     std::chrono::steady_clock::now() + std::chrono::seconds(30));
  };
  EXPECT_THAT(find_gone(0, {1, 2, 3}), IsEmpty());
  EXPECT_THAT(find_gone(0, {}), IsEmpty());
  job.kill(2);
  EXPECT_THAT(find_gone(0, {1, 2, 3}), ElementsAre(2));
  EXPECT_THAT(find_gone(3, {0}), IsEmpty());
  job.kill(0);
  EXPECT_THAT(find_gone(3, {0}), ElementsAre(0));
  const std::vector<int> left = {1, 3};
  MeetingRequest request = request_of();
  request.min_workers = 2;
  expect_met(job.meet(left, request), left, left, 2);  // in the same epoch as before
}

TEST(MeetingPlaceTest, DifferentCallsAreAnErrorOnBoth) {
  Job job(2);
  MeetingRequest all = request_of();
  all.call = "rebuild(ALL)";
  all.needs_all = true;
  Outcome one;
  std::thread other([&] { one = job.meet(1, all); });
  const Outcome zero = job.meet(0, request_of());
  other.join();
  for (const Outcome* each : {&zero, static_cast<const Outcome*>(&one)}) {
    EXPECT_EQ(each->code, StatusCode::INTERNAL);
    EXPECT_THAT(each->error, HasSubstr("workers make different calls: rank 0 rebuild(ONLY), rank 1 "
                                       "rebuild(ALL)"));
  }
}

TEST(MeetingPlaceTest, OneCallAtATime) {
  Job job(2);
  const int before = num_listening();
  Outcome zero;
  std::thread first([&] { zero = job.meet(0, request_of()); });
  while (num_listening() == before) std::this_thread::yield();
  EXPECT_EQ(job.meet(0, request_of()).code, StatusCode::FAILED_PRECONDITION);
  const Outcome one = job.meet(1, request_of());
  first.join();
  expect_met({zero, one}, {0, 1}, {0, 1}, 2);
}

TEST(MeetingPlaceTest, AnotherJobsWorkersAreNotBelieved) {
  Job job(2);
  Job other(2, "another secret");
  std::vector<MemberInfo> strangers(2);
  for (int rank = 0; rank < 2; ++rank) strangers[static_cast<std::size_t>(rank)].rank = rank;
  strangers[0].addresses = other.place(0).addresses();
  const std::shared_ptr<MeetingPlace> alone =
      MeetingPlace::open({.chief_host = "127.0.0.1",
                          .chief_port = 0,
                          .secret = "secret",
                          .tls = tls_key("secret"),
                          .heartbeat_timeout = std::chrono::seconds(5)});
  alone->begin(4711, 1, strangers);
  MeetingRequest request = request_of(std::chrono::milliseconds(500));
  EXPECT_THROW((void)alone->meet(request), DeadlineExceededError);
  EXPECT_EQ(other.place(0).epoch().number, 1U);
}

/// Listens where a worker that has ended did, holds no secret, and tells whoever asks that all is over.
class Impostor {
 public:
  Impostor() {
    thread_ = std::thread([this] {
      while (const std::unique_ptr<FrameSpeaker> speaker = address_.accept()) {
        speaker->say(ControlKind::CHALLENGE, Challenge{.nonce = make_nonce()}.encode());
        (void)speaker->hear();
        const Refused refused{.code = StatusCode::INTERNAL, .text = "it is over"};
        speaker->say(ControlKind::REFUSED, refused.encode());
        num_asked_.fetch_add(1);
      }
    });
  }
  ~Impostor() {
    address_.stop();
    thread_.join();
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  [[nodiscard]] std::string address() const { return address_.text(); }
  [[nodiscard]] int num_asked() const { return num_asked_.load(); }

 private:
  const SpeakersAddress address_;
  std::atomic<int> num_asked_{0};
  std::thread thread_;
};

TEST(MeetingPlaceTest, AStrangerWhereOneHasEndedEndsNoCall) {
  const Impostor impostor;
  Job job(3, "secret", "127.0.0.1", {{0, impostor.address()}});
  job.kill(0);
  MeetingRequest request = request_of(std::chrono::seconds(2));
  request.needs_all = true;
  for (const Outcome& each : job.meet({1, 2}, request)) {
    EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(each.error, HasSubstr("waiting for rank 0"));
    if (environment().tls) continue;
    EXPECT_THAT(each.error,
                HasSubstr("; somebody is where rank 0 was: it refuses without a proof "
                          "that it holds the secret of this job, and says: it is over"));
  }
  request = request_of();
  request.patience = std::chrono::seconds(1);
  expect_met(job.meet({1, 2}, request), {1, 2}, {1, 2}, 2);
  EXPECT_GT(impostor.num_asked(), 0);
}

/// A member as a candidate sees it, that says what a test makes it say.
class ScriptedMember {
 public:
  /// Comes to rank 0 of five, as soon as that takes it in.
  ScriptedMember(int rank, std::uint16_t port) {
    bool is_in = false;
    while (!is_in) {
      speaker_ = FrameSpeaker::dial(port);
      const std::optional<std::string> challenge = speaker_->hear(ControlKind::CHALLENGE);
      Seek seek;
      seek.job = 4711;
      seek.rank = rank;
      seek.epoch = {1, {0, 1, 2, 3, 4}};
      seek.call = "rebuild(ONLY)";
      seek.mac = seek.expected_mac("secret", Challenge::decode(challenge.value()).nonce);
      speaker_->say(ControlKind::SEEK, seek.encode());
      is_in = Found::decode(speaker_->hear(ControlKind::FOUND).value()).takes_in;
    }
    ballot_ = BallotMessage::decode(speaker_->hear(ControlKind::PREPARE).value()).ballot;
  }
  void promise(const Vote& earlier) const {
    speaker_->say(ControlKind::PROMISE, PromiseMessage{{ballot_, earlier}}.encode());
  }
  void vote() const {
    (void)speaker_->hear(ControlKind::PROPOSE);
    speaker_->say(ControlKind::ACCEPT, BallotMessage{ballot_}.encode());
  }
  void beat() const { speaker_->say(ControlKind::HEARTBEAT, ""); }

 private:
  std::unique_ptr<FrameSpeaker> speaker_;
  Ballot ballot_;
};

/// The list that an earlier candidate has proposed, without this one, is chosen at the moment when the one is given up whose vote is missing.
TEST(MeetingPlaceTest, ACandidateThatItsOwnBeatLeavesOutIsToldSo) {
  const std::shared_ptr<MeetingPlace> place =
      MeetingPlace::open({.chief_host = "127.0.0.1",
                          .chief_port = 0,
                          .secret = "secret",
                          .heartbeat_timeout = std::chrono::seconds(1)});
  std::vector<MemberInfo> everyone(5);
  for (int rank = 0; rank < 5; ++rank) everyone[static_cast<std::size_t>(rank)].rank = rank;
  place->begin(4711, 0, everyone);
  std::atomic<bool> is_over{false};
  std::thread candidate([&] {
    try {
      (void)place->meet(request_of());
      ADD_FAILURE() << "it is not of the next epoch";
    } catch (const AbortedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("epoch 2 has begun with 3 workers without it"));
    }
    is_over.store(true);
  });
  const std::uint16_t port = parse_host_port(place->addresses()[0]).port;
  std::vector<std::unique_ptr<ScriptedMember>> members;
  for (int rank = 1; rank < 5; ++rank) {
    members.push_back(std::make_unique<ScriptedMember>(rank, port));
  }
  for (const auto& member : members) member->promise({Ballot{0, 1}, {1, 2, 3}});
  for (std::size_t i = 0; i < 3; ++i) members[i]->vote();
  while (!is_over.load()) {  // rank 4 is stopped
    for (std::size_t i = 0; i < 3; ++i) members[i]->beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  candidate.join();
  EXPECT_EQ(place->epoch(), (Epoch{2, {1, 2, 3}}));
}

/// Whoever holds the secret, and is of this job, but of no rank that it has: nothing that it says is believed.
TEST(MeetingPlaceTest, ARankOutOfRangeIsRefused) {
  const std::shared_ptr<MeetingPlace> place =
      MeetingPlace::open({.chief_host = "127.0.0.1",
                          .secret = "secret",
                          .heartbeat_timeout = std::chrono::seconds(1)});
  place->begin(4711, 0, std::vector<MemberInfo>(2));
  for (const int rank : {-1, 2, 1000}) {
    const auto speaker = FrameSpeaker::dial(parse_host_port(place->addresses()[0]).port);
    const std::optional<std::string> challenge = speaker->hear(ControlKind::CHALLENGE);
    Seek seek;
    seek.job = 4711;
    seek.rank = rank;
    seek.epoch = {9, {0}};
    seek.mac = seek.expected_mac("secret", Challenge::decode(challenge.value()).nonce);
    speaker->say(ControlKind::SEEK, seek.encode());
    const Refused refused = Refused::decode(speaker->hear(ControlKind::REFUSED).value());
    EXPECT_EQ(refused.text, "this job has no such rank");
    EXPECT_TRUE(is_equal(refused.mac, refused.expected_mac("secret", seek.nonce)));
  }
  EXPECT_EQ(place->epoch().number, 1U);
}

}  // namespace
}  // namespace crossdevice::detail
