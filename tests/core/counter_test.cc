// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/counter.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/counters.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CounterTest, StartsAtNothingAndAddsUp) {
  static constinit const Counter counter("test_adds_up_total", "", "help");
  EXPECT_EQ(counter.value(), 0u);
  counter.add();
  counter.add(41);
  counter.add(0);
  EXPECT_EQ(counter.value(), 42u);
}

TEST(CounterTest, EqualNamesAreOneCounterAndLabelsDiffer) {
  static constinit const Counter a("test_same_total", "kind=\"a\"", "help");
  static constinit const Counter again("test_same_total", "kind=\"a\"", "help");
  static constinit const Counter b("test_same_total", "kind=\"b\"", "help");
  a.add(1);
  again.add(2);
  b.add(10);
  EXPECT_EQ(a.value(), 3u);
  EXPECT_EQ(again.value(), 3u);
  EXPECT_EQ(counter_value("test_same_total"), 13);
  EXPECT_EQ(counter_value("test_same_total", "kind=\"b\""), 10);
  EXPECT_EQ(counter_value("test_same_total", "kind=\"c\""), 0);
  EXPECT_EQ(counter_value("test_nobody_total"), 0);
}

TEST(CounterTest, NothingIsLostAmongThreadsThatComeAndGo) {
  static constinit const Counter counter("test_threads_total", "", "help");
  constexpr int kRounds = 20;
  constexpr int kThreads = 8;
  constexpr int kAdds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < kAdds; ++i) counter.add();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(counter.value(),
              std::uint64_t{kThreads} * kAdds * (static_cast<unsigned>(round) + 1));
  }
}

TEST(CounterTest, IsReadWhileOthersCountAndNeverGoesBack) {
  static constinit const Counter counter("test_read_total", "", "help");
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    while (!stop) counter.add();
  });
  std::uint64_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now = counter.value();
    EXPECT_GE(now, before);
    before = now;
  }
  stop = true;
  thread.join();
}

TEST(CounterTest, MayBeCountedByDestructorsOfAThreadsOwnObjects) {
  static constinit const Counter counter("test_late_total", "", "help");
  struct CountsLate {
    CountsLate() = default;
    ~CountsLate() { counter.add(); }
    CountsLate(const CountsLate&) = delete;
    CountsLate& operator=(const CountsLate&) = delete;
  };
  for (int i = 0; i < 10; ++i) {
    std::thread([] {
      thread_local CountsLate first;  // made before the thread's cells are: destroyed after them
      (void)&first;
      counter.add();
    }).join();
  }
  EXPECT_EQ(counter.value(), 20u);
}

TEST(CounterTest, NanosecondsAreShownAsSeconds) {
  static constinit const Counter counter("test_seconds_total", "", "help",
                                         Counter::Unit::NANOSECONDS);
  counter.add(1'500'000'000);
  EXPECT_EQ(counter.value(), 1'500'000'000u);
  EXPECT_DOUBLE_EQ(counter_value("test_seconds_total"), 1.5);
}

using CounterDeathTest = ::testing::Test;

TEST(CounterDeathTest, NothingIsCountedWhereTheEnvironmentSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has not looked yet
  EXPECT_EXIT(
      {
        ::setenv("CROSSDEVICE_COUNTERS", "0", 1);  // NOLINT(concurrency-mt-unsafe): the only thread
        static constinit const Counter counter("test_switched_off_total", "", "help");
        counter.add(3);
        // NOLINTNEXTLINE(concurrency-mt-unsafe)
        std::exit(counter.value() == 0 && !detail::is_counted() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(detail::is_counted());  // here nobody has said so
}

TEST(CountersTest, TextHasOneHeadForEachNameAndALineForEachSample) {
  static constinit const Counter a("test_text_total", "kind=\"a\"", "What a \\ is\nfor.");
  static constinit const Counter b("test_text_total", "kind=\"b\"", "What a \\ is\nfor.");
  static constinit const Counter alone("test_text_alone_total", "", "Alone.");
  a.add(7);
  b.add(123456789012);
  alone.add(1);
  const std::string text = counters_text();
  EXPECT_THAT(text, HasSubstr("# HELP test_text_total What a \\\\ is\\nfor.\n"
                              "# TYPE test_text_total counter\n"
                              "test_text_total{kind=\"a\"} 7\n"
                              "test_text_total{kind=\"b\"} 123456789012\n"));
  EXPECT_THAT(text, HasSubstr("# HELP test_text_alone_total Alone.\n"
                              "# TYPE test_text_alone_total counter\n"
                              "test_text_alone_total 1\n"));
  EXPECT_EQ(text.back(), '\n');
}

TEST(CountersTest, SourcesAreAskedWheneverSomebodyReadsAndStandInOrder) {
  static int calls = 0;
  const auto source = +[](std::vector<CounterSample>& samples) {
    ++calls;
    samples.push_back({.name = "test_gauge",
                       .labels = "device=\"CPU:0\"",
                       .help = "help",
                       .kind = CounterKind::GAUGE,
                       .value = 2.5});
  };
  add_counter_source(source);
  add_counter_source(source);  // the same one: once
  EXPECT_EQ(counter_value("test_gauge"), 2.5);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(counters_text(),
              HasSubstr("# TYPE test_gauge gauge\ntest_gauge{device=\"CPU:0\"} 2.5\n"));
  std::string before;
  for (const CounterSample& sample : counters()) {
    EXPECT_LE(before, sample.name);
    before = sample.name;
  }
}

TEST(CountersTest, MoreCountersThanThereIsRoomForAreNotCountedAndHarmNone) {
  static std::vector<std::string> names;  // kept: counters hold pointers
  names.reserve(2 * Counter::kMaxCounters);
  std::vector<std::unique_ptr<const Counter>> many;
  many.reserve(2 * Counter::kMaxCounters);
  for (std::size_t i = 0; i < 2 * Counter::kMaxCounters; ++i) {
    names.push_back("zz_test_many_" + std::to_string(i));
    many.push_back(std::make_unique<const Counter>(names.back().c_str(), "", "help"));
    many.back()->add(i + 1);
  }
  EXPECT_EQ(many.front()->value(), 1u);
  EXPECT_EQ(many.back()->value(), 0u);
  EXPECT_LE(counters().size(), Counter::kMaxCounters + 8);
}

}  // namespace
}  // namespace crossdevice
