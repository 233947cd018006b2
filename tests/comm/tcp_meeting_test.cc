// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_meeting.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "comm/detail/wire.h"
#include "support/log_keeper.h"
#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LogKeeper;

constexpr std::uint64_t kCluster = 42;

// NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
const bool kSaysAll = ::setenv("CROSSDEVICE_LOG_LEVEL", "info", 1) == 0;  // read once, later

TcpMeetingOptions options_of(int rank, int num_ranks, const std::string& secret = "secret") {
  TcpMeetingOptions options;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.cluster_id = kCluster;
  options.secret = secret;
  return options;
}

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
bool never() { return false; }

/// Meetings that know of each other.
std::vector<std::unique_ptr<TcpMeeting>> make_meetings(int num_ranks) {
  std::vector<std::unique_ptr<TcpMeeting>> meetings;
  meetings.reserve(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    meetings.push_back(std::make_unique<TcpMeeting>(options_of(rank, num_ranks)));
  }
  for (const auto& each : meetings) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      each->learn(rank, meetings[static_cast<std::size_t>(rank)]->announcement(), true);
    }
  }
  return meetings;
}

/// A socket of somebody who is not of the job.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(std::string_view bytes) const {
    (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void say(const HelloBytes& hello) const { say(std::string_view(hello.data(), hello.size())); }
  /// What comes until it ends, or there are `size` bytes.
  [[nodiscard]] std::string hear(std::size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t count = ::recv(socket_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return bytes;
  }
  [[nodiscard]] Nonce hear_challenge() const {
    const std::string bytes = hear(kChallengeBytes);
    ChallengeBytes block{};
    EXPECT_EQ(bytes.size(), block.size());
    std::copy(bytes.begin(), bytes.end(), block.begin());
    return decode_challenge(block);
  }

 private:
  int socket_;
};

/// Sockets of a meeting, closed at the end, with a word: who ends a connection without one has given it up.
class Connected {
 public:
  explicit Connected(TcpMeeting& meeting) : all_(meeting.take_connected()) {
    for (const auto& [rank, fd, tls] : all_) pairs_.emplace_back(rank, fd);
  }
  ~Connected() {
    const char word = 'x';
    for (const auto& [rank, fd] : pairs_) {
      (void)::send(fd, &word, 1, MSG_NOSIGNAL);
      ::close(fd);
    }
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;
  [[nodiscard]] std::set<int> ranks() const {
    std::set<int> ranks;
    for (const auto& [rank, fd] : pairs_) ranks.insert(rank);
    return ranks;
  }
  [[nodiscard]] const std::vector<std::pair<int, int>>& pairs() const { return pairs_; }

 private:
  std::vector<TcpMeeting::Connected> all_;
  std::vector<std::pair<int, int>> pairs_;
};

TEST(TcpMeetingTest, EachPairHasOneConnection) {
  for (const int num_ranks : {1, 2, 3, 8}) {
    const auto meetings = make_meetings(num_ranks);
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<int> peers;
        for (int each = 0; each < num_ranks; ++each) {
          if (each != rank) peers.push_back(each);
        }
        TcpMeeting& meeting = *meetings[static_cast<std::size_t>(rank)];
        meeting.meet(peers, soon(), never);
        const Connected connected(meeting);
        EXPECT_EQ(connected.ranks(), std::set<int>(peers.begin(), peers.end()));
        for (const auto& [peer, fd] : connected.pairs()) {
          EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
          const char mine = static_cast<char>(rank);
          EXPECT_EQ(::send(fd, &mine, 1, MSG_NOSIGNAL), 1);
        }
        for (const auto& [peer, fd] : connected.pairs()) {
          char theirs = 0;
          while (::recv(fd, &theirs, 1, 0) < 0) {
          }
          EXPECT_EQ(theirs, static_cast<char>(peer));
        }
      });
    }
    for (std::thread& each : threads) each.join();
  }
}

TEST(TcpMeetingTest, WhoIsNotYetThereIsWaitedFor) {
  const auto meetings = make_meetings(3);
  std::thread early([&] {
    const std::vector<int> peers = {1, 2};
    meetings[0]->meet(peers, soon(), never);
    EXPECT_EQ(Connected(*meetings[0]).ranks(), (std::set<int>{1, 2}));
  });
  // Rank 0 is taken in while rank 2 looks for rank 1 alone.
  std::thread second([&] {
    const std::vector<int> first = {1};
    meetings[2]->meet(first, soon(), never);
    const std::vector<int> then = {0};
    meetings[2]->meet(then, soon(), never);
    EXPECT_EQ(Connected(*meetings[2]).ranks(), (std::set<int>{0, 1}));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::vector<int> peers = {0, 2};
  meetings[1]->meet(peers, soon(), never);
  EXPECT_EQ(Connected(*meetings[1]).ranks(), (std::set<int>{0, 2}));
  early.join();
  second.join();
}

TEST(TcpMeetingTest, ADeadlineOrAnInterruptEndsIt) {
  const auto meetings = make_meetings(2);
  const std::vector<int> peers = {1};
  meetings[0]->meet(peers, Deadline::after(std::chrono::milliseconds(50)), never);
  EXPECT_THAT(Connected(*meetings[0]).ranks(), IsEmpty());
  std::atomic<bool> is_over{false};
  std::thread interrupting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_over = true;
    meetings[0]->interrupt();
  });
  meetings[0]->meet(peers, soon(), [&] { return is_over.load(); });
  interrupting.join();
  EXPECT_THAT(Connected(*meetings[0]).ranks(), IsEmpty());
}

TEST(TcpMeetingTest, AddressesThatLeadNowhereAreNotWaitedFor) {
  const auto meetings = make_meetings(2);
  const std::uint16_t port = meetings[1]->port();
  TcpMeetingOptions options = options_of(0, 2);
  options.is_loopback_only = false;
  TcpMeeting dialling(options);
  WireWriter announcement;
  announcement.number(port).text("127.0.0.1");
  announcement.list(std::vector<std::string>{"192.0.2.1", "::1", "127.0.0.3", "127.0.0.1"},
                    [](WireWriter& to, const std::string& each) { to.text(each); });
  dialling.learn(1, announcement.take(), false);
  std::thread other([&] {
    const std::vector<int> peers = {0};
    meetings[1]->meet(peers, soon(), never);
    EXPECT_EQ(Connected(*meetings[1]).ranks(), std::set<int>{0});
  });
  const std::vector<int> peers = {1};
  dialling.meet(peers, soon(), never);
  EXPECT_EQ(Connected(dialling).ranks(), std::set<int>{1});
  other.join();
}

TEST(TcpMeetingTest, AnnouncementsAreChecked) {
  TcpMeeting meeting(options_of(0, 2));
  const std::string good = meeting.announcement();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(meeting.learn(1, good.substr(0, size), true), WireError);
  }
  EXPECT_THROW(
      meeting.learn(1, WireWriter().number(std::uint16_t{1}).text("x").number(0U).take(), true),
      WireError);
}

/// Rank 1 of 3 meets rank 0 in spite of what `disturb` does to its port.
void expect_meeting(const std::function<void(std::uint16_t port)>& disturb) {
  const auto meetings = make_meetings(3);
  std::atomic<bool> has_met{false};
  std::thread listening([&] {
    const std::vector<int> peers = {0};
    meetings[1]->meet(peers, soon(), never);
    has_met = true;
    EXPECT_EQ(Connected(*meetings[1]).ranks(), std::set<int>{0});
  });
  disturb(meetings[1]->port());
  EXPECT_FALSE(has_met);
  const std::vector<int> peers = {1};
  meetings[0]->meet(peers, soon(), never);
  EXPECT_EQ(Connected(*meetings[0]).ranks(), std::set<int>{1});
  listening.join();
}

TEST(TcpMeetingTest, ManySilentStrangersDoNotKeepOthersOut) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  expect_meeting([&](std::uint16_t port) {
    for (int i = 0; i < 500; ++i) strangers.push_back(std::make_unique<Stranger>(port));
  });
}

TEST(TcpMeetingTest, StrangersWhoSayLittleOrNonsenseDoNotKeepOthersOut) {
  LogKeeper log;
  std::vector<std::unique_ptr<Stranger>> strangers;
  expect_meeting([&](std::uint16_t port) {
    for (int i = 0; i < 50; ++i) {
      strangers.push_back(std::make_unique<Stranger>(port));
      strangers.back()->say(std::string(static_cast<std::size_t>(i * 7), 'x'));
    }
    strangers.push_back(std::make_unique<Stranger>(port));
    strangers.back()->say(std::string(1000000, 'x').substr(0, 100000));
    Stranger(port).say("GET / HTTP/1.1\r\n\r\n");
  });
}

TEST(TcpMeetingTest, WhoGoesWithoutAWordIsNamedOnceAndIsNoWarning) {
  ASSERT_TRUE(kSaysAll);
  LogKeeper log;
  expect_meeting([&](std::uint16_t port) {
    for (int i = 0; i < 3; ++i) (void)Stranger(port).hear_challenge();
    EXPECT_TRUE(log.await("it came and went without a word", soon()));
  });
  const std::string all = log.texts();
  const std::string visit = "rank 1's transport had a visit from 127.0.0.1 (port ";
  EXPECT_THAT(all, HasSubstr(visit));
  EXPECT_EQ(all.find(visit), all.rfind(visit)) << all;
  EXPECT_EQ(log.warnings(), "");
}

TEST(TcpMeetingTest, WhoHasBegunAndWaitsIsRefusedWhenAllHaveCome) {
  LogKeeper log;
  std::optional<Stranger> silent;
  std::optional<Stranger> begun;
  expect_meeting([&](std::uint16_t port) {
    for (std::optional<Stranger>* each : {&silent, &begun}) {
      each->emplace(port);
      (void)(*each)->hear_challenge();
    }
    begun->say(std::string(7, 'x'));
    // So that it has had the time for more; and not so long that it is late.
    std::this_thread::sleep_for(StrangerPlaces::kLongestStay);
  });
  if (log.warnings().find("in time") != std::string::npos) {
    GTEST_SKIP() << "this process was held up for so long that its time was over";
  }
  const std::string refused = "rank 1's transport refused a connection from 127.0.0.1 (port ";
  EXPECT_THAT(log.warnings(), HasSubstr(refused));
  EXPECT_EQ(log.warnings().find(refused), log.warnings().rfind(refused)) << log.warnings();
  EXPECT_THAT(log.warnings(),
              HasSubstr("it had only begun to say who it is when the door was closed"));
}

TEST(TcpMeetingTest, WhoIsNotWhoIsExpectedIsRefused) {
  LogKeeper log;
  expect_meeting([&](std::uint16_t port) {
    const auto is_refused = [&](const std::string& secret, const TcpPair& pair) {
      const Stranger stranger(port);
      const Nonce challenge = stranger.hear_challenge();
      stranger.say(encode_hello(secret, pair, challenge, make_nonce()));
      return stranger.hear(1).empty();
    };
    EXPECT_TRUE(is_refused("another", {kCluster, 0, 1}));
    EXPECT_TRUE(is_refused("", {kCluster, 0, 1}));
    EXPECT_TRUE(is_refused("secret", {kCluster + 1, 0, 1}));
    EXPECT_TRUE(is_refused("secret", {kCluster, 0, 2}));
    EXPECT_TRUE(is_refused("secret", {kCluster, 1, 1}));
    EXPECT_TRUE(is_refused("secret", {kCluster, 2, 1}));
    EXPECT_TRUE(is_refused("secret", {kCluster, -1, 1}));
    EXPECT_TRUE(is_refused("secret", {kCluster, 1000000, 1}));
  });
  EXPECT_THAT(log.texts(), HasSubstr("does not hold the secret"));
  EXPECT_THAT(log.texts(), HasSubstr("looks for somebody else"));
  EXPECT_THAT(log.texts(), HasSubstr("no such rank dials"));
}

TEST(TcpMeetingTest, ASecondOneThatClaimsARankIsRefused) {
  LogKeeper log;
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {0, 1};
    meetings[2]->meet(peers, soon(), never);
    EXPECT_EQ(Connected(*meetings[2]).ranks(), (std::set<int>{0, 1}));
  });
  const std::vector<int> peers = {2};
  meetings[0]->meet(peers, soon(), never);
  // Until rank 2 has heard that rank 0 counts its connection, another one may be welcomed; but no longer.
  const auto is_welcomed = [&] {
    const Stranger second(meetings[2]->port());
    second.say(encode_hello("secret", {kCluster, 0, 2}, second.hear_challenge(), make_nonce()));
    return !second.hear(1).empty();
  };
  while (is_welcomed()) {
  }
  EXPECT_THAT(log.texts(), HasSubstr("claims rank 0, which is connected"));
  meetings[1]->meet(peers, soon(), never);
  listening.join();
}

/// Says hello to `meeting` as that rank would, and is made welcome.
std::unique_ptr<Stranger> come(const TcpMeeting& meeting, int as_rank, int listener) {
  auto caller = std::make_unique<Stranger>(meeting.port());
  caller->say(encode_hello("secret", {kCluster, as_rank, listener}, caller->hear_challenge(),
                           make_nonce()));
  EXPECT_EQ(caller->hear(kWelcomeBytes).size(), kWelcomeBytes);
  return caller;
}

/// The same, and ends the connection: what is left of a try that was given up.
void come_and_go(const TcpMeeting& meeting, int as_rank, int listener) {
  (void)come(meeting, as_rank, listener);
}

std::string here() {
  const HereBytes bytes = encode_here();
  return {bytes.data(), bytes.size()};
}

/// Whether a byte comes through from `from` to `to`.
bool are_connected(const Connected& from, const Connected& to) {
  const char sent = 'x';
  if (::send(from.pairs()[0].second, &sent, 1, MSG_NOSIGNAL) != 1) return false;
  const int fd = to.pairs()[0].second;
  char came = 0;
  (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return ::recv(fd, &came, 1, 0) == 1 && came == sent;
}

TEST(TcpMeetingTest, AFirstOneThatHasGoneGivesWayToTheNext) {
  LogKeeper log;
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {0, 1};
    meetings[2]->meet(peers, soon(), never);
  });
  for (int i = 0; i < 3; ++i) come_and_go(*meetings[2], 0, 2);
  const std::vector<int> peers = {2};
  meetings[0]->meet(peers, Deadline::after(std::chrono::seconds(20)), never);
  EXPECT_EQ(meetings[0]->last_error(2), "");
  EXPECT_TRUE(meetings[0]->has_met(2));
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  const Connected dialler(*meetings[0]);
  const Connected listener(*meetings[2]);
  ASSERT_EQ(listener.ranks(), (std::set<int>{0, 1}));
  ASSERT_EQ(dialler.ranks(), std::set<int>{2});
  EXPECT_TRUE(are_connected(dialler, listener));
}

TEST(TcpMeetingTest, WhoHasGoneAgainIsStillWaitedFor) {
  LogKeeper log;
  const auto meetings = make_meetings(3);
  std::atomic<bool> has_met{false};
  std::thread listening([&] {
    const std::vector<int> peers = {0, 1};
    meetings[2]->meet(peers, soon(), never);
    has_met = true;
  });
  come_and_go(*meetings[2], 0, 2);
  const std::vector<int> peers = {2};
  meetings[1]->meet(peers, soon(), never);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_met);
  meetings[0]->meet(peers, soon(), never);
  listening.join();
  const Connected dialler(*meetings[0]);
  const Connected listener(*meetings[2]);
  EXPECT_EQ(listener.ranks(), (std::set<int>{0, 1}));
  EXPECT_EQ(dialler.ranks(), std::set<int>{2});
}

TEST(TcpMeetingTest, WhoCameUnaskedAndHasGoneIsNotHandedOut) {
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {1};
    meetings[2]->meet(peers, soon(), never);
  });
  come_and_go(*meetings[2], 0, 2);
  const std::vector<int> peers = {2};
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  EXPECT_EQ(Connected(*meetings[2]).ranks(), std::set<int>{1});
  EXPECT_FALSE(meetings[2]->has_met(0));
}

TEST(TcpMeetingTest, TriesGivenUpWhoseEndIsNotHeardGiveWay) {
  LogKeeper log;
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {0, 1};
    meetings[2]->meet(peers, soon(), never);
  });
  // As where the network parts them: welcomed, never heard of again, and never closed.
  constexpr std::size_t kGivenUp = 20;
  std::vector<std::unique_ptr<Stranger>> given_up;
  given_up.reserve(kGivenUp);
  while (given_up.size() < kGivenUp) given_up.push_back(come(*meetings[2], 0, 2));
  EXPECT_EQ(given_up.front()->hear(1), "");  // there is a limit to how many are kept
  const std::vector<int> peers = {2};
  meetings[0]->meet(peers, soon(), never);
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  const Connected dialler(*meetings[0]);
  const Connected listener(*meetings[2]);
  ASSERT_EQ(listener.ranks(), (std::set<int>{0, 1}));
  ASSERT_EQ(dialler.ranks(), std::set<int>{2});
  EXPECT_TRUE(are_connected(dialler, listener));
  EXPECT_EQ(given_up.back()->hear(1), "");
}

TEST(TcpMeetingTest, NobodyCountsBeforeItHasSaidThatItDoes) {
  const auto meetings = make_meetings(3);
  std::unique_ptr<Stranger> caller;
  std::thread listening([&] {
    const std::vector<int> peers = {1};
    meetings[2]->meet(peers, soon(), never);
  });
  caller = come(*meetings[2], 0, 2);
  const std::vector<int> peers = {2};
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  EXPECT_EQ(Connected(*meetings[2]).ranks(), std::set<int>{1});
  // It may have counted the connection, and spoken on it, and left.
  EXPECT_TRUE(meetings[2]->has_met(0));
  const std::vector<int> then = {0};
  meetings[2]->meet(then, Deadline::after(std::chrono::milliseconds(50)), never);
  EXPECT_THAT(Connected(*meetings[2]).ranks(), IsEmpty());
  EXPECT_THAT(meetings[2]->last_error(0), HasSubstr("whether it has heard the answer"));
  caller->say(here() + "what it says next");
  meetings[2]->meet(then, soon(), never);
  const Connected connected(*meetings[2]);
  ASSERT_EQ(connected.ranks(), std::set<int>{0});
  std::string next(17, '\0');
  EXPECT_EQ(::recv(connected.pairs()[0].second, next.data(), next.size(), 0), 17);
  EXPECT_EQ(next, "what it says next");
}

TEST(TcpMeetingTest, WhoMayCountAConnectionHearsTheLastWords) {
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {1};
    meetings[2]->meet(peers, soon(), never);
  });
  // One has said that it counts it, which nobody has read; the other has not yet.
  const auto first = come(*meetings[2], 0, 2);
  const auto second = come(*meetings[2], 0, 2);
  const std::vector<int> peers = {2};
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  first->say(here());
  meetings[2]->dismiss("farewell");
  EXPECT_EQ(first->hear(100), "farewell");
  EXPECT_EQ(second->hear(100), "farewell");
  EXPECT_FALSE(meetings[2]->has_met(0));
}

TEST(TcpMeetingTest, WhoAnswersTheWelcomeWithNonsenseDoesNotCount) {
  LogKeeper log;
  const auto meetings = make_meetings(2);
  std::thread listening([&] {
    const std::vector<int> peers = {0};
    meetings[1]->meet(peers, soon(), never);
  });
  const auto caller = come(*meetings[1], 0, 1);
  caller->say("GET / HTTP/1.1");
  EXPECT_EQ(caller->hear(1), "");
  const std::vector<int> peers = {1};
  meetings[0]->meet(peers, soon(), never);
  listening.join();
  EXPECT_TRUE(are_connected(Connected(*meetings[0]), Connected(*meetings[1])));
  EXPECT_THAT(log.texts(), HasSubstr("something else speaks there"));
}

TEST(TcpMeetingTest, WhoSpokeBeforeItWentHasCome) {
  const auto meetings = make_meetings(3);
  std::thread listening([&] {
    const std::vector<int> peers = {0, 1};
    meetings[2]->meet(peers, soon(), never);
  });
  const std::vector<int> peers = {2};
  meetings[0]->meet(peers, soon(), never);
  EXPECT_EQ(Connected(*meetings[0]).ranks(), std::set<int>{2});
  meetings[1]->meet(peers, soon(), never);
  listening.join();
  EXPECT_EQ(Connected(*meetings[2]).ranks(), (std::set<int>{0, 1}));
}

TEST(TcpMeetingTest, WhoCanTakeInNobodySaysSo) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  TcpMeeting meeting(options_of(1, 2));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(meeting.port());
  ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const int peers[] = {0};
  {
    const testing::WithoutDescriptors limit;
    EXPECT_THROW(meeting.meet(peers, soon(), never), ResourceExhaustedError);
  }
  ::close(socket);
}

TEST(TcpMeetingTest, WhoCanDialNobodySaysSo) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  const std::vector<std::unique_ptr<TcpMeeting>> meetings = make_meetings(2);
  const int peers[] = {1};
  const testing::WithoutDescriptors limit;
  EXPECT_THROW(meetings[0]->meet(peers, soon(), never), ResourceExhaustedError);
}

TEST(TcpMeetingTest, AnImpostorIsNotBelieved) {
  LogKeeper log;
  // Listens where rank 1 should, and knows no secret.
  TcpMeeting impostor(options_of(1, 2, "guessed"));
  TcpMeeting meeting(options_of(0, 2));
  meeting.learn(1, impostor.announcement(), true);
  std::atomic<bool> is_over{false};
  std::thread listening([&] {
    const std::vector<int> peers = {0};
    impostor.meet(peers, soon(), [&] { return is_over.load(); });
  });
  const std::vector<int> peers = {1};
  const Deadline some_tries = Deadline::after(std::chrono::seconds(1));
  const auto is_refused = [&] {
    return meeting.last_error(1).find("refuses this member") != std::string::npos;
  };
  meeting.meet(peers, soon(), [&] { return some_tries.has_passed() && is_refused(); });
  EXPECT_THAT(Connected(meeting).ranks(), IsEmpty());
  EXPECT_TRUE(is_refused()) << meeting.last_error(1);
  is_over = true;
  impostor.interrupt();
  listening.join();
}

}  // namespace
}  // namespace crossdevice::detail
