// SPDX-License-Identifier: Apache-2.0
// What is counted of waits for other workers: each one that spinning did not end, once, under what was waited for, with how long it took; no other.
#include "comm/detail/wait_span.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"

#include "comm/detail/transport_kind.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;
using testing::no_errors;
using testing::run_clusters;

constexpr const char* kShared = "for=\"shared_memory\"";
constexpr const char* kMessages = "for=\"messages\"";
constexpr std::chrono::milliseconds kMoment{2};

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// What counters say of waits, at one moment.
struct Waits {
  double shared = counter_value("crossdevice_waits_total", kShared);
  double messages = counter_value("crossdevice_waits_total", kMessages);
  double shared_seconds = counter_value("crossdevice_wait_seconds_total", kShared);
  double messages_seconds = counter_value("crossdevice_wait_seconds_total", kMessages);
};

/// How much they grow while `body` runs.
Waits growth(const std::function<void()>& body) {
  const Waits before;
  body();
  const Waits after;
  return {.shared = after.shared - before.shared,
          .messages = after.messages - before.messages,
          .shared_seconds = after.shared_seconds - before.shared_seconds,
          .messages_seconds = after.messages_seconds - before.messages_seconds};
}

/// The value on the line of the text exposition that begins so; nothing where there is none.
std::optional<double> in_text(const std::string& name, const std::string& labels) {
  const std::string text = counters_text();
  const std::string begin = "\n" + name + "{" + labels + "} ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return std::nullopt;
  return std::stod(text.substr(at + begin.size()));
}

// ---------------------------------------------------------------------------------------------- messages

/// A transport whose message comes when a test says.
class ToldKind final : public detail::TransportKind {
 public:
  enum class Comes { AT_ONCE, AFTER_SLEEPS, NEVER };

  explicit ToldKind(Comes comes, int num_sleeps = 0)
      : TransportKind(0, {{.rank = 0}, {.rank = 1}}, /*spins=*/false),
        comes_(comes),
        num_sleeps_left_(num_sleeps) {}
  ~ToldKind() override { forget_all(); }
  void close() override {}

 protected:
  void open(std::span<const int> /*peers*/, const Deadline& /*deadline*/) override {}
  void start_send(Peer& peer, Transfer& transfer) override { peer.sends.push_back(transfer); }
  void start_receive(Peer& peer, Transfer& transfer) override { peer.receives.push_back(transfer); }
  bool progress() override {
    Peer& from = peer(1);
    if (comes_ == Comes::NEVER || num_sleeps_left_ > 0 || from.receives.is_empty()) return false;
    complete(from.receives.pop_front());
    return true;
  }
  /// So that a waiter sleeps as soon as it has looked, however long that took.
  [[nodiscard]] bool is_bulky() const override { return true; }
  void sleep(Clock::time_point /*until*/) override {
    std::this_thread::sleep_for(kMoment);
    --num_sleeps_left_;
    if (comes_ == Comes::NEVER) {
      fail_from_outside({.code = StatusCode::ABORTED, .text = "enough", .culprits = {}});
    }
  }
  void wake() noexcept override {}
  void tell(const detail::TransportFailure& /*failure*/) noexcept override {}
  void let_go() noexcept override {}

 private:
  Comes comes_;
  int num_sleeps_left_;
};

/// Waits for one message.
void receive_one(ToldKind& kind) {
  const std::vector<int> peers{1};
  kind.connect(peers, soon());
  kind.begin({.kind = "test"});
  std::byte byte{};
  Transfer transfer;
  kind.receive(1, std::span<std::byte>(&byte, 1), transfer);
  kind.wait(transfer, soon());
}

TEST(WaitSpanTest, AWaitForAMessageThatSleepsIsOneHoweverOftenItSleeps) {
  constexpr int kSleeps = 3;
  const Clock::time_point begin = Clock::now();
  const Waits grown = growth([] {
    ToldKind kind(ToldKind::Comes::AFTER_SLEEPS, kSleeps);
    receive_one(kind);
  });
  EXPECT_EQ(grown.messages, 1);
  EXPECT_EQ(grown.shared, 0);
  // What was slept is in it, and nothing that was not waited.
  EXPECT_GE(grown.messages_seconds, seconds(kSleeps * kMoment));
  EXPECT_LE(grown.messages_seconds, seconds(Clock::now() - begin));
  EXPECT_EQ(grown.shared_seconds, 0);
}

TEST(WaitSpanTest, AMessageThatIsThereIsNoWait) {
  const Waits grown = growth([] {
    ToldKind kind(ToldKind::Comes::AT_ONCE);
    for (int i = 0; i < 10; ++i) receive_one(kind);
  });
  EXPECT_EQ(grown.messages, 0);
  EXPECT_EQ(grown.messages_seconds, 0);
}

TEST(WaitSpanTest, AWaitThatEndsWithAnErrorCountsToo) {
  const Waits grown = growth([] {
    ToldKind kind(ToldKind::Comes::NEVER);
    EXPECT_THROW(receive_one(kind), AbortedError);
  });
  EXPECT_EQ(grown.messages, 1);
  EXPECT_GE(grown.messages_seconds, seconds(kMoment));
}

TEST(WaitSpanTest, NothingIsCountedWhileCountersAreOff) {
  ASSERT_TRUE(detail::is_counted());
  const Waits grown = growth([] {
    detail::counter_state = detail::CounterState::OFF;
    ToldKind kind(ToldKind::Comes::AFTER_SLEEPS, 1);
    receive_one(kind);
    detail::counter_state = detail::CounterState::ON;
  });
  EXPECT_EQ(grown.messages, 0);
  EXPECT_EQ(grown.messages_seconds, 0);
}

// ---------------------------------------------------------------------------------------------- shared memory

TEST(WaitSpanTest, OnlyWhoWaitsInSharedMemoryCountsIt) {
  std::latch waits{1};
  const Clock::time_point begin = Clock::now();
  const Waits grown = growth([&] {
    const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
      SharedMemoryGroup group(cluster);
      if (cluster->rank() == 1) {
        waits.wait();
        std::this_thread::sleep_for(kMoment);
      }
      // Who looks around does not spin any more.
      group.while_waiting([&, has_looked = false]() mutable {
        if (!has_looked) waits.count_down();
        has_looked = true;
      });
      group.announce({.kind = "test"}, 1, SharedMemoryGroup::Touches::SLOTS);
      group.await_announcements(soon());  // rank 0 has come long before rank 1
    };
    EXPECT_EQ(run_clusters(2, work), no_errors(2));
  });
  EXPECT_EQ(grown.shared, 1);
  EXPECT_GE(grown.shared_seconds, seconds(kMoment));
  EXPECT_LE(grown.shared_seconds, seconds(Clock::now() - begin));
}

TEST(WaitSpanTest, WhereAllHaveComeNobodyWaitsInSharedMemory) {
  constexpr int kWorkers = 3;
  std::latch have_come{kWorkers};
  const Waits grown = growth([&] {
    const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
      SharedMemoryGroup group(cluster);
      group.announce({.kind = "test"}, 1, SharedMemoryGroup::Touches::SLOTS);
      have_come.arrive_and_wait();
      group.await_announcements(soon());
    };
    EXPECT_EQ(run_clusters(kWorkers, work), no_errors(kWorkers));
  });
  EXPECT_EQ(grown.shared, 0);
  EXPECT_EQ(grown.shared_seconds, 0);
}

// ---------------------------------------------------------------------------------------------- as text

TEST(WaitSpanTest, TheTextSaysTheSame) {
  const auto no_bytes = [] { return std::uint64_t{0}; };
  const auto wait_once = [&](const detail::WaitKind& kind) {
    const Clock::time_point begin = Clock::now();
    detail::WaitSpan wait(kind, no_bytes);
    std::this_thread::sleep_for(kMoment);
    wait.set_long(begin);
  };
  for (const auto& [kind, labels] : {std::pair(&detail::kSharedMemoryWait, kShared),
                                     std::pair(&detail::kMessagesWait, kMessages)}) {
    wait_once(*kind);  // there from its first one on
    const std::optional<double> waits = in_text("crossdevice_waits_total", labels);
    const std::optional<double> taken = in_text("crossdevice_wait_seconds_total", labels);
    ASSERT_TRUE(waits.has_value() && taken.has_value()) << counters_text();
    wait_once(*kind);
    EXPECT_EQ(in_text("crossdevice_waits_total", labels), *waits + 1);
    EXPECT_GE(in_text("crossdevice_wait_seconds_total", labels).value_or(0),
              *taken + seconds(kMoment) - 1e-9);  // of sums
    { const detail::WaitSpan spins(*kind, no_bytes); }
    EXPECT_EQ(in_text("crossdevice_waits_total", labels), *waits + 1);
  }
  EXPECT_THAT(counters_text(), HasSubstr("# TYPE crossdevice_waits_total counter\n"));
  EXPECT_THAT(counters_text(), HasSubstr("# TYPE crossdevice_wait_seconds_total counter\n"));
}

}  // namespace
}  // namespace crossdevice
