// SPDX-License-Identifier: Apache-2.0
// The variable is read once per process, so each test that writes a file runs in a process of its own.
#include "crossdevice/core/trace.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/counters.h"

#include "core/detail/trace_file.h"
#include "core/detail/trace_ring.h"
#include "support/sanitizers.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;

std::string path_of(const std::string& name) {
  return ::testing::TempDir() + "crossdevice_trace_" + std::to_string(::getpid()) + "_" + name;
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Runs `body` in a child that traces to `path`, and returns its status.
int run_in_child(const std::string& path, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    setenv("CROSSDEVICE_TRACE", path.c_str(), 1);
    // As if nobody had looked yet.
    detail::trace_state.store(detail::kTraceUnknown);
    body();
    std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

std::vector<nlohmann::json> bars_of(const nlohmann::json& events) {
  std::vector<nlohmann::json> bars;
  std::copy_if(events.begin(), events.end(), std::back_inserter(bars),
               [](const nlohmann::json& event) { return event.at("ph") == "X"; });
  return bars;
}

const nlohmann::json& named(const std::vector<nlohmann::json>& bars, const std::string& name) {
  const auto found = std::find_if(bars.begin(), bars.end(), [&name](const nlohmann::json& bar) {
    return bar.at("name") == name;
  });
  if (found == bars.end()) throw std::runtime_error("no bar " + name);
  return *found;
}

bool contains(const nlohmann::json& outer, const nlohmann::json& inner) {
  const auto end = [](const nlohmann::json& bar) {
    return bar.at("ts").get<double>() + bar.at("dur").get<double>();
  };
  constexpr double kRounding = 0.002;  // of numbers with three places
  return outer.at("ts").get<double>() <= inner.at("ts").get<double>() + kRounding &&
         end(inner) <= end(outer) + kRounding;
}

const detail::TraceTracks& two_tracks() {
  static const detail::TraceTracks& tracks = *new detail::TraceTracks{{"CPU:0", "CPU:1"}};
  return tracks;
}

TEST(TraceTest, WithoutAVariableASpanIsClosed) {
  unsetenv("CROSSDEVICE_TRACE");
  const TraceSpan span("nothing");
  EXPECT_FALSE(span.is_open());
  EXPECT_EQ(detail::trace_state.load(), 0u);
}

TEST(TraceTest, BarsNestAndSayWhatTheyAreOnEveryTrack) {
  const std::string path = path_of("nest.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           TraceSpan operation("reduce", "operation", [] {
                             return TraceArguments{
                                 .sequence = 7, .num_bytes = 4096, .tracks = &two_tracks()};
                           });
                           TraceSpan communicate("communicate", "collective",
                                                 [] { return TraceArguments{.num_bytes = 8}; });
                           communicate.set_how("ring", "float32");
                           const TraceSpan wait("wait", "comm");
                         }),
            0);
  const nlohmann::json events = nlohmann::json::parse(text_of(path));
  const std::vector<nlohmann::json> bars = bars_of(events);
  ASSERT_EQ(bars.size(), 6u);  // three on two tracks
  const nlohmann::json& operation = named(bars, "reduce");
  EXPECT_EQ(operation.at("cat"), "operation");
  EXPECT_EQ(operation.at("args"),
            (nlohmann::json{
                {"sequence", 7}, {"bytes", 4096}, {"dtype", "float32"}, {"algorithm", "ring"}}));
  const nlohmann::json& communicate = named(bars, "communicate");
  EXPECT_EQ(communicate.at("args").at("sequence"), 7);
  EXPECT_EQ(communicate.at("args").at("bytes"), 8);
  const nlohmann::json& wait = named(bars, "wait");
  EXPECT_EQ(wait.at("args"), (nlohmann::json{{"sequence", 7}, {"algorithm", "ring"}}));
  EXPECT_TRUE(contains(operation, communicate));
  EXPECT_TRUE(contains(communicate, wait));
  EXPECT_EQ(operation.at("tid"), wait.at("tid"));
  std::vector<std::string> tracks;
  for (const nlohmann::json& event : events) {
    if (event.at("name") == "thread_name") tracks.push_back(event.at("args").at("name"));
  }
  EXPECT_THAT(tracks, ElementsAre("CPU:0", "CPU:1"));
  EXPECT_EQ(events.back().at("name"), "crossdevice_end");
  EXPECT_EQ(events.back().at("args").at("dropped"), 0);
}

TEST(TraceTest, ABarThatIsToldLateHowIsNotTakenForTheOneAroundIt) {
  const std::string path = path_of("late.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           TraceSpan both("both", "collective");
                           both.set_how("two_level", "float32");
                           TraceSpan inner("inner", "collective");
                           { const TraceSpan before("before", "comm"); }
                           inner.set_how("ring", "float32");
                           { const TraceSpan after("after", "comm"); }
                         }),
            0);
  const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
  EXPECT_EQ(named(bars, "both").at("args").at("algorithm"), "two_level");
  EXPECT_EQ(named(bars, "inner").at("args").at("algorithm"), "ring");
  EXPECT_TRUE(named(bars, "before").at("args").empty());
  EXPECT_EQ(named(bars, "after").at("args").at("algorithm"), "ring");
}

TEST(TraceTest, AProgramsBarKeepsToItselfHowItWasReduced) {
  const std::string path = path_of("program.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           const TraceSpan step("step");
                           TraceSpan operation("reduce", "operation");
                           operation.set_how("ring", "int8");
                         }),
            0);
  const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
  EXPECT_TRUE(named(bars, "step").at("args").empty());
  EXPECT_EQ(named(bars, "reduce").at("args").at("algorithm"), "ring");
}

TEST(TraceTest, EachThreadHasTracksOfItsOwn) {
  const std::string path = path_of("threads.json");
  constexpr int kThreads = 4;
  constexpr int kBars = 500;
  ASSERT_EQ(run_in_child(path,
                         [] {
                           std::atomic<int> num_ready = 0;
                           std::vector<std::thread> threads;
                           threads.reserve(kThreads);
                           for (int t = 0; t < kThreads; ++t) {
                             threads.emplace_back([&num_ready] {
                               ++num_ready;
                               while (num_ready < kThreads) std::this_thread::yield();
                               for (int i = 0; i < kBars; ++i) {
                                 const TraceSpan span("reduce", "operation", [] {
                                   return TraceArguments{.tracks = &two_tracks()};
                                 });
                               }
                             });
                           }
                           for (std::thread& thread : threads) thread.join();
                         }),
            0);
  const nlohmann::json events = nlohmann::json::parse(text_of(path));
  std::map<int, double> ends;
  for (const nlohmann::json& bar : bars_of(events)) {
    double& end = ends[bar.at("tid").get<int>()];
    EXPECT_GE(bar.at("ts").get<double>() + 0.002, end) << "bars of one track overlap";
    end = bar.at("ts").get<double>() + bar.at("dur").get<double>();
  }
  EXPECT_EQ(bars_of(events).size(), std::size_t{2} * kThreads * kBars);
  EXPECT_GE(ends.size(), 2u);
  EXPECT_LE(ends.size(), std::size_t{2} * kThreads);
}

TEST(TraceTest, AProcessThatIsKilledLeavesWhatChromeCanRead) {
  const std::string path = path_of("killed.json");
  const int status = run_in_child(path, [] {
    { const TraceSpan span("before"); }
    flush_trace();
    raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  std::string text = text_of(path);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.substr(text.size() - 2), ",\n");
  text.replace(text.size() - 2, 2, "]");
  EXPECT_EQ(named(bars_of(nlohmann::json::parse(text)), "before").at("ph"), "X");
}

TEST(TraceTest, WhatDoesNotFitIsDroppedCountedAndSaid) {
  const std::string path = path_of("overflow.json");
  constexpr std::size_t kMore = 1000;
  ASSERT_EQ(run_in_child(path,
                         [] {
                           { const TraceSpan span("first"); }
                           detail::stop_trace_thread();
                           for (std::size_t i = 0; i < detail::TraceRing::kSize + kMore; ++i) {
                             const TraceSpan span("many");
                           }
                           if (counter_value("crossdevice_trace_dropped_total") != kMore) _exit(3);
                           // Read, not counted.
                           detail::counter_state = detail::CounterState::OFF;
                           if (counter_value("crossdevice_trace_dropped_total") != kMore) _exit(4);
                         }),
            0);
  const nlohmann::json events = nlohmann::json::parse(text_of(path));
  EXPECT_EQ(bars_of(events).size(), detail::TraceRing::kSize + 1);
  EXPECT_EQ(events.back().at("args").at("dropped"), kMore);
}

TEST(TraceTest, AFileThatCannotBeMadeIsSaidAndHarmsNothing) {
  EXPECT_EQ(run_in_child("/no/such/folder/trace.json",
                         [] {
                           { const TraceSpan span("lost"); }
                           if (detail::trace_state.load() != 0) _exit(3);
                         }),
            0);
}

/// A sanitizer's own locks may be held by the trace's thread while another forks, and are held in the child for ever.
TEST(TraceTest, AChildOfForkWritesNothing) {
  if (testing::kIsSanitized) GTEST_SKIP() << "fork() with threads may lock up under a sanitizer";
  const std::string path = path_of("fork.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           { const TraceSpan span("parent"); }
                           const pid_t child = fork();
                           if (child == 0) {
                             { const TraceSpan span("child"); }
                             std::exit(0);
                           }
                           int status = -1;
                           waitpid(child, &status, 0);
                           if (status != 0) _exit(3);
                         }),
            0);
  const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].at("name"), "parent");
}

/// As when mpirun or torchrun starts several with one CROSSDEVICE_TRACE.
TEST(TraceTest, AnotherProcessWithTheSameFileWritesBesideIt) {
  if (testing::kIsSanitized) GTEST_SKIP() << "fork() with threads may lock up under a sanitizer";
  const std::string path = path_of("shared.json");
  const std::string number = path_of("number");
  const auto trace_beside = [&] {
    detail::trace_state.store(detail::kTraceUnknown);  // a process of its own
    std::ofstream(number) << ::getpid();
    { const TraceSpan span("second"); }
    std::exit(0);
  };
  ASSERT_EQ(run_in_child(path,
                         [&] {
                           { const TraceSpan span("first"); }
                           flush_trace();
                           const pid_t other = fork();
                           if (other == 0) trace_beside();
                           int status = -1;
                           waitpid(other, &status, 0);
                           if (status != 0) _exit(3);
                           const TraceSpan span("third");
                         }),
            0);
  const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars[0].at("name"), "first");
  EXPECT_EQ(bars[1].at("name"), "third");
  const std::string beside = path + "." + text_of(number);
  const std::vector<nlohmann::json> others = bars_of(nlohmann::json::parse(text_of(beside)));
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].at("name"), "second");
}

TEST(TraceTest, AFileOfAProcessThatHasEndedIsReplaced) {
  const std::string path = path_of("again.json");
  for (const char* const name : {"a bar of the first with a long name", "second"}) {
    ASSERT_EQ(run_in_child(path, [name] { const TraceSpan span(name); }), 0);
    const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
    ASSERT_EQ(bars.size(), 1u);
    EXPECT_EQ(bars[0].at("name"), name);
  }
}

TEST(TraceTest, NamesMayHoldWhatJsonMayNot) {
  const std::string path = path_of("names.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           const TraceSpan span("read \"x\"\\\n", "a\"b", [] {
                             return TraceArguments{.dtype = "\"", .algorithm = "\\"};
                           });
                         }),
            0);
  const std::vector<nlohmann::json> bars = bars_of(nlohmann::json::parse(text_of(path)));
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].at("name"), "read \"x\"\\ ");
  EXPECT_EQ(bars[0].at("cat"), "a\"b");
  EXPECT_EQ(bars[0].at("args"), (nlohmann::json{{"dtype", "\""}, {"algorithm", "\\"}}));
}

TEST(TraceTest, TheProcessIsNamedAfterItsRank) {
  const std::string path = path_of("rank.json");
  ASSERT_EQ(run_in_child(path,
                         [] {
                           detail::set_trace_rank(3, "host \"b\"");
                           const TraceSpan span("reduce");
                         }),
            0);
  std::string name;
  for (const nlohmann::json& event : nlohmann::json::parse(text_of(path))) {
    if (event.at("name") == "process_name") name = event.at("args").at("name");
  }
  EXPECT_THAT(name, ::testing::StartsWith("rank 3 (host \"b\", pid "));
}

TEST(TraceTest, PathsHoldTheProcessAndTheRank) {
  const std::string pid = std::to_string(::getpid());
  EXPECT_EQ(detail::expand_trace_path("a.json", "1"), "a.json");
  EXPECT_EQ(detail::expand_trace_path("a%r.%p.%r", "1"), "a1." + pid + ".1");
  EXPECT_EQ(detail::expand_trace_path("%r", ""), "pid" + pid);
  EXPECT_EQ(detail::expand_trace_path("%", "1"), "%");
}

// ---------------------------------------------------------------------------------------------- hooks

std::vector<std::string> hook_calls;

TEST(TraceTest, AHookSeesEverySpanOpenAndClose) {
  unsetenv("CROSSDEVICE_TRACE");
  static constexpr detail::SpanHook hook{
      .push =
          [](const detail::TraceEvent& event) noexcept {
            hook_calls.push_back(std::string(event.name) + " " +
                                 std::to_string(event.arguments.num_bytes) + " " +
                                 std::to_string(event.arguments.sequence));
          },
      .pop = []() noexcept { hook_calls.emplace_back("pop"); }};
  detail::set_span_hook(&hook);
  {
    const TraceSpan outer("outer", "operation",
                          [] { return TraceArguments{.sequence = 2, .num_bytes = 64}; });
    const TraceSpan inner("inner");
  }
  {
    const TraceSpan last("last");
    detail::set_span_hook(nullptr);  // who was told of a span is told of its end
  }
  { const TraceSpan nobody("nobody"); }
  EXPECT_THAT(hook_calls, ElementsAre("outer 64 2", "inner 0 2", "pop", "pop", "last 0 0", "pop"));
}

}  // namespace
}  // namespace crossdevice
