// SPDX-License-Identifier: Apache-2.0
/// Strangers on another machine, which is a network namespace here: what loopback keeps out, what the secret keeps out, and what is said of whom.
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "bench/namespace_obstacle.h"
#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"

namespace crossdevice::strangers {
namespace {

using detail::ControlKind;
using ::testing::HasSubstr;
using ::testing::SizeIs;

int own_namespace() { return ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }

/// Two machines on one wire, without a name anywhere. The second has a second address, which is the strangers'.
class TwoMachines {
 public:
  static constexpr const char* kFirst = "10.91.0.1";
  static constexpr const char* kSecond = "10.91.0.2";
  static constexpr const char* kStranger = "10.91.0.3";

  TwoMachines() : home_(own_namespace()) {
    make(second_, "true");
    make(first_, fmt::format("ip link add wire type veth peer name wire netns /proc/{}/fd/{} && "
                             "ip addr add {}/24 dev wire && ip link set wire up",
                             ::getpid(), second_, kFirst));
    enter(second_);
    run(fmt::format(
        "ip addr add {}/24 dev wire && ip addr add {}/24 dev wire && ip link set wire up", kSecond,
        kStranger));
    enter(home_);
  }
  ~TwoMachines() {
    for (const int each : {home_, first_, second_}) ::close(each);
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;

  [[nodiscard]] int first() const { return first_; }
  [[nodiscard]] int second() const { return second_; }
  /// Somebody on the second machine who is not of the job.
  [[nodiscard]] Caller call_first(std::uint16_t port) const {
    return call({.port = port, .address = kFirst, .from = kStranger});
  }
  [[nodiscard]] Caller call(const Where& where) const {
    enter(second_);
    Caller caller(where);  // a socket stays where it was made
    enter(home_);
    return caller;
  }

 private:
  static void enter(int descriptor) { EXPECT_EQ(::setns(descriptor, CLONE_NEWNET), 0); }
  static void run(const std::string& command) {
    EXPECT_EQ(std::system(command.c_str()), 0)
        << command;  // NOLINT(concurrency-mt-unsafe): one thread
  }
  static void make(int& descriptor, const std::string& command) {
    EXPECT_EQ(::unshare(CLONE_NEWNET), 0);
    descriptor = own_namespace();
    run("ip link set lo up && " + command);
  }

  int home_;
  int first_ = -1;
  int second_ = -1;
};

class NamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = run::namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
    machines_.emplace();
  }
  std::optional<TwoMachines> machines_;
};

TEST_F(NamespacesTest, WithASecretStrangersOfAnotherMachineAreRefusedAndNamed) {
  JobOptions options{.num_workers = 2};
  options.chief_host = TwoMachines::kFirst;
  options.network_namespaces = {machines_->first(), machines_->second()};
  Job job(options);
  ASSERT_TRUE(job.await_rounds(3)) << job.printed();
  std::size_t num_answered = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (const std::uint16_t port : doors_of(job.pid(rank))) {
      bool is_answered = false;
      for (std::size_t i = 0; i < 8; ++i) {
        const Caller caller =
            machines_->call({.port = port,
                             .address = rank == 0 ? TwoMachines::kFirst : TwoMachines::kSecond,
                             .from = TwoMachines::kStranger});
        ASSERT_TRUE(caller.is_connected()) << port;
        if (i >= 4 && is_answered) (void)caller.hear_challenge();  // the others speak at once
        caller.say(words_of_stranger(i));
        ::shutdown(caller.descriptor(), SHUT_WR);
        // The transports leave them to the kernel, as nobody is waited for.
        if (i == 0) is_answered = caller.hear_all(std::chrono::seconds(5)).has_value();
      }
      num_answered += is_answered ? 1U : 0U;
    }
  }
  EXPECT_EQ(num_answered, 3U);  // the chief and two meeting places
  const auto times = [&](int rank, const std::string& door, const std::string& text) {
    std::size_t count = 0;
    const std::string all = job.printed(rank);
    const std::string begin = door + " refused a connection from 10.91.0.3 (port ";
    for (std::size_t at = all.find(begin); at != std::string::npos; at = all.find(begin, at + 1)) {
      count += count_of("): " + text, all.substr(at, all.find('\n', at) - at));
    }
    return count;
  };
  EXPECT_TRUE(Job::await([&] {
    return times(0, "the chief (rank 0)", "") == 2 && times(0, "rank 0's meeting place", "") == 1 &&
           times(1, "rank 1's meeting place", "") == 1;
  })) << job.printed();
  EXPECT_EQ(times(0, "the chief (rank 0)", "this worker and the chief hold different secrets"), 1U);
  EXPECT_EQ(times(1, "rank 1's meeting place", "it did not say who it is: "), 1U);
  EXPECT_TRUE(job.await_rounds(3)) << job.printed();
  EXPECT_EQ(job.finish(), (std::vector<int>{0, 0})) << job.printed();
}

TEST_F(NamespacesTest, AJobOnLoopbackCannotBeReachedFromElsewhere) {
  for (const bool apart : {true, false}) {
    for (const char* secret : {"", "a secret of this job"}) {
      JobOptions options{.num_workers = 2, .apart = apart, .secret = secret};
      options.network_namespaces = {machines_->first(), machines_->first()};
      Job job(options);
      ASSERT_TRUE(job.await_rounds(3)) << job.printed();
      std::size_t num_doors = 0;
      for (int rank = 0; rank < 2; ++rank) {
        for (const std::uint16_t port : doors_of(job.pid(rank))) {
          ++num_doors;
          const Caller caller = machines_->call_first(port);
          EXPECT_FALSE(caller.is_connected());
          EXPECT_EQ(caller.error(), ECONNREFUSED);
        }
      }
      // That of the tensors, which with a secret is for members on other machines too, is closed: all have connected.
      EXPECT_EQ(num_doors, 3U);
      EXPECT_EQ(job.finish(), (std::vector<int>{0, 0})) << job.printed();
    }
  }
}

TEST_F(NamespacesTest, WithoutASecretAnotherMachineIsNotBelieved) {
  JobOptions options{.num_workers = 2, .secret = "", .join_seconds = 5};
  options.chief_host = TwoMachines::kFirst;
  options.network_namespaces = {machines_->first(), machines_->second()};
  Job job(options);
  ASSERT_TRUE(Job::await([&] { return machines_->call_first(job.chief_port()).is_connected(); }));
  for (int i = 0; i < 3; ++i) {
    const Caller caller = machines_->call_first(job.chief_port());
    detail::Hello hello;
    hello.library_version = library_version_string();
    hello.num_workers = 2;
    hello.member.rank = 1;
    hello.mac = hello.expected_mac("", caller.hear_challenge());  // all there is to prove
    caller.say(detail::encode_frame(ControlKind::HELLO, hello.encode()));
    const std::optional<detail::Frame> answer = caller.hear_frame();
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(detail::Refused::decode(answer->payload).text,
                HasSubstr("without a secret the chief takes workers over loopback only"));
  }
  EXPECT_EQ(job.wait(), (std::vector<int>{3, 3}));
  EXPECT_EQ(
      count_of("the chief (rank 0) refused a connection from 10.91.0.3 (port ", job.printed(0)), 1U)
      << job.printed(0);
  EXPECT_THAT(job.printed(1), HasSubstr("is not at a loopback address, which needs a secret"));
}

}  // namespace
}  // namespace crossdevice::strangers
