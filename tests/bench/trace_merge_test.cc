// SPDX-License-Identifier: Apache-2.0
// One timeline of several workers: out of files that end anywhere, of machines with other clocks, and of a real job.
#include "run/trace_merge.h"

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceMergeTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  static std::string clock(const std::string& boot, long monotonic_ns, long realtime_ns) {
    return R"({"name":"crossdevice_clock","ph":"M","pid":7,"tid":0,"args":{"clock":")" + boot +
           R"(","monotonic_ns":)" + std::to_string(monotonic_ns) + R"(,"realtime_ns":)" +
           std::to_string(realtime_ns) + "}},\n";
  }
  static std::string offset(const std::string& other, long at_ns, long to_add_ns,
                            long within_ns = 10) {
    return R"({"name":"crossdevice_clock_offset","ph":"M","pid":7,"tid":0,"args":{"clock":")" +
           other + R"(","at_ns":)" + std::to_string(at_ns) + R"(,"to_add_ns":)" +
           std::to_string(to_add_ns) + R"(,"within_ns":)" + std::to_string(within_ns) + "}},\n";
  }
  static std::string bar(const std::string& name, double ts) {
    return R"({"name":")" + name + R"(","ph":"X","ts":)" + std::to_string(ts) +
           R"(,"dur":1.5,"pid":7,"tid":1,"args":{}},)" + "\n";
  }
  static nlohmann::json merged(const std::vector<std::string>& parts) {
    std::ostringstream text;
    merge_traces(parts, text);
    return nlohmann::json::parse(text.str());
  }
  static nlohmann::json find(const nlohmann::json& events, const std::string& name) {
    for (const nlohmann::json& event : events) {
      if (event.at("name") == name) return event;
    }
    return nullptr;
  }
  static nlohmann::json find_of(const nlohmann::json& events, const std::string& name, int pid) {
    for (const nlohmann::json& event : events) {
      if (event.at("name") == name && event.at("pid") == pid) return event;
    }
    return nullptr;
  }

 private:
  std::string folder_ =
      ::testing::TempDir() + "crossdevice_trace_merge_" + std::to_string(::getpid());
};

TEST_F(TraceMergeTest, EachPartIsAProcessAndTimesOfOneMachineStay) {
  const nlohmann::json events =
      merged({write("a", "[\n" + clock("m", 5, 1000) + bar("one", 10) + "{\"name\":\"end\"}\n]\n"),
              write("b", "[\n" + clock("m", 900, 7777) + bar("two", 20))});
  EXPECT_EQ(find(events, "one").at("pid"), 0);
  EXPECT_EQ(find(events, "two").at("pid"), 1);
  EXPECT_DOUBLE_EQ(find(events, "one").at("ts"), 10);
  EXPECT_DOUBLE_EQ(find(events, "two").at("ts"), 20);
  EXPECT_EQ(events.size(), 5u);
}

TEST_F(TraceMergeTest, TimesOfAnotherMachineAreMovedByTheSystemClocks) {
  // At 1000000 ns of the world's time the first machine's clock said 0, the other's 600000.
  const nlohmann::json events =
      merged({write("a", "[\n" + clock("m", 0, 1'000'000) + bar("one", 10)),
              write("b", "[\n" + clock("n", 600'000, 1'000'000) + bar("two", 620))});
  EXPECT_DOUBLE_EQ(find(events, "two").at("ts"), 20);
}

TEST_F(TraceMergeTest, ComparedClocksCountForMoreThanTheSystems) {
  // By the system clocks 620 us there would be 20 us here. Between comparisons the clock drifts evenly; beside them it stands as they say.
  const nlohmann::json events = merged(
      {write("a", "[\n" + clock("m", 0, 1'000'000) + bar("one", 10)),
       write("b", "[\n" + clock("n", 600'000, 1'000'000) + bar("before", 600) +
                      bar("between", 1500) + bar("after", 3000) + offset("m", 1'000'000, -500'000) +
                      offset("m", 2'000'000, -500'100) +
                      offset("m", 1'200'000, 77'000'000, 81))});  // poor: wrong by 8 times as much
  EXPECT_DOUBLE_EQ(find(events, "before").at("ts"), 100);
  EXPECT_DOUBLE_EQ(find(events, "between").at("ts"), 999.95);
  EXPECT_DOUBLE_EQ(find(events, "after").at("ts"), 2499.9);
  EXPECT_DOUBLE_EQ(find(events, "one").at("ts"), 10);
}

TEST_F(TraceMergeTest, ClocksAreComparedByWayOfOthers) {
  // The first part's worker was not the chief; and one of the third machine was compared by a worker that shares its clock.
  const nlohmann::json events = merged(
      {write("a", "[\n" + clock("m", 0, 0) + bar("one", 10) + offset("chief", 10'000, 1'000)),
       write("b", "[\n" + clock("n", 0, 0) + bar("two", 20)),
       write("c", "[\n" + clock("n", 0, 0) + offset("chief", 20'000, -5'000))});
  EXPECT_DOUBLE_EQ(find(events, "one").at("ts"), 10);
  EXPECT_DOUBLE_EQ(find(events, "two").at("ts"), 20 - 5 - 1);
}

TEST_F(TraceMergeTest, APartThatSaysNothingOfClocksHidesNoOthers) {
  const nlohmann::json events =
      merged({write("a", ""), write("b", "[\n" + clock("m", 0, 0)),
              write("c", "[\n" + clock("n", 0, 0) + bar("one", 10) + offset("m", 10'000, 1'000))});
  EXPECT_DOUBLE_EQ(find(events, "one").at("ts"), 11);
}

TEST_F(TraceMergeTest, WhatNoClockCanHaveSaidIsNotBelieved) {
  constexpr long kMost = std::numeric_limits<long>::max();
  constexpr long kLeast = std::numeric_limits<long>::min();
  const nlohmann::json events =
      merged({write("a", "[\n" + clock("m", 0, 1'000'000) + bar("one", 10)),
              write("b", "[\n" + clock("n", 600'000, 1'000'000) + bar("two", 620) +
                             bar("far", 1e300) + offset("m", kMost, kMost) +
                             offset("m", 0, kLeast) + offset("m", 0, 0, kMost)),
              write("c", "[\n" + clock("o", kLeast, kMost) + bar("three", 30))});
  EXPECT_DOUBLE_EQ(find(events, "two").at("ts"), 20);
  EXPECT_DOUBLE_EQ(find(events, "three").at("ts"), 30);
}

TEST_F(TraceMergeTest, WhatIsNoWholeEventIsLeftOut) {
  const std::string cut = bar("cut", 3);
  const nlohmann::json events =
      merged({write("a", "[\n" + bar("whole", 1) + cut.substr(0, cut.size() / 2)), write("b", ""),
              write("c", "[\nnull,\n17,\n")});
  EXPECT_EQ(events.size(), 1u);
  EXPECT_THAT(merged({}), IsEmpty());
  EXPECT_THROW((void)merged({path("absent")}), std::runtime_error);
}

/// A worker is named when its file begins, when it has joined, and when it has joined anew.
TEST_F(TraceMergeTest, AProcessHasOneNameItsLast) {
  const auto said = [](const std::string& what, const std::string& arguments) {
    return R"({"name":")" + what + R"(","ph":"M","pid":7,"tid":0,"args":{)" + arguments + "}},\n";
  };
  const nlohmann::json events =
      merged({write("a", "[\n" + said("process_name", R"("name":"rank 0")") +
                             bar("process_name", 1) +  // a program's bars are called what it likes
                             said("process_name", R"("name":"rank 0 on a")") +
                             said("process_sort_index", R"("sort_index":1)") +
                             said("process_sort_index", R"("sort_index":0)")),
              write("b", "[\n" + said("process_name", R"("name":"rank 1")"))});
  std::vector<std::string> found;
  for (const nlohmann::json& event : events) {
    if (event.at("ph") == "X") continue;
    found.push_back(event.at("pid").dump() + " " + event.at("args").dump());
  }
  EXPECT_THAT(found, ElementsAre(R"(0 {"name":"rank 0 on a"})", R"(0 {"sort_index":0})",
                                 R"(1 {"name":"rank 1"})"));
  EXPECT_EQ(events.size(), 4u);
}

TEST_F(TraceMergeTest, PartsAreFoundByRank) {
  const std::string whole = path("t.json");
  for (const char* name : {"t.json.10.5.part", "t.json.2.6.part", "t.json.2.4.part",
                           "t.json.x.part", "u.json.0.1.part", "t.json.3.7", "t.json"}) {
    write(name, "");
  }
  EXPECT_THAT(find_trace_parts(whole), ElementsAre(path("t.json.2.4.part"), path("t.json.2.6.part"),
                                                   path("t.json.10.5.part")));
  EXPECT_EQ(trace_part_pattern(whole), whole + ".%r.%p.part");
}

TEST_F(TraceMergeTest, TwoWorkersOfAJobBecomeOneFile) {
  const std::string whole = path("job.json");
  write("job.json.7.1.part", "of an earlier job");
  RunningJob job({"-n", "2", "--trace", whole, "--", CROSSDEVICE_SUMMING_WORKER});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.err, "");
  std::ifstream file(whole);
  const nlohmann::json events = nlohmann::json::parse(file);
  EXPECT_THAT(find_trace_parts(whole), IsEmpty());
  std::map<int, std::set<std::string>> names;
  std::map<int, std::vector<std::string>> processes;
  std::map<int, nlohmann::json> operations;
  for (const nlohmann::json& event : events) {
    const int pid = event.at("pid");
    if (event.at("ph") == "X") names[pid].insert(event.at("name"));
    if (event.at("name") == "process_name") processes[pid].push_back(event.at("args").at("name"));
    if (event.at("name") == "reduce") operations[pid] = event;
  }
  ASSERT_EQ(operations.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(processes[rank], ElementsAre(HasSubstr("rank " + std::to_string(rank) + " (")));
    for (const char* name : {"reduce", "pack", "communicate", "reduce share", "unpack"}) {
      EXPECT_TRUE(names[rank].contains(name)) << name;
    }
    const nlohmann::json& arguments = operations[rank].at("args");
    EXPECT_EQ(arguments.at("bytes"), 400'012);
    EXPECT_EQ(arguments.at("algorithm"), "shared_memory");
    EXPECT_EQ(arguments.at("dtype"), "float32");
  }
  // Whoever comes last need not wait.
  EXPECT_TRUE(names[0].contains("wait") || names[1].contains("wait"));
  // Neither ends before the other has begun: their clocks are one.
  const auto begin = [&](int rank) { return operations[rank].at("ts").get<double>(); };
  const auto end = [&](int rank) { return begin(rank) + operations[rank].at("dur").get<double>(); };
  EXPECT_LE(begin(0), end(1));
  EXPECT_LE(begin(1), end(0));
}

TEST_F(TraceMergeTest, WorkersWithOtherClocksAreCompared) {
  // As on another machine: what is shown there is 1000 s more.
  if (std::system("unshare --time --fork true 2>/dev/null") != 0) {
    GTEST_SKIP() << "needs root and time namespaces";
  }
  const std::string whole = path("clocks.json");
  const std::string script = std::string(
                                 "if [ $CROSSDEVICE_RANK = 1 ]; then exec unshare --time "
                                 "--monotonic 1000 --fork --kill-child ") +
                             CROSSDEVICE_SUMMING_WORKER + "; else exec " +
                             CROSSDEVICE_SUMMING_WORKER + "; fi";
  RunningJob job({"-n", "2", "--trace", whole, "--", "sh", "-c", script});
  EXPECT_EQ(job.finish(), 0) << job.err;
  std::ifstream file(whole);
  const nlohmann::json events = nlohmann::json::parse(file);
  const nlohmann::json compared = find(events, "crossdevice_clock_offset");
  ASSERT_FALSE(compared.is_null());
  EXPECT_EQ(compared.at("pid"), 1);
  const nlohmann::json& offset = compared.at("args");
  EXPECT_EQ(offset.at("clock"), find(events, "crossdevice_clock").at("args").at("clock"));
  const auto error_ns = offset.at("to_add_ns").get<std::int64_t>() + 1'000'000'000'000;
  EXPECT_LE(std::abs(error_ns), offset.at("within_ns").get<std::int64_t>());
  const nlohmann::json first = find_of(events, "reduce", 0);
  const nlohmann::json second = find_of(events, "reduce", 1);
  const auto end = [](const nlohmann::json& event) {
    return event.at("ts").get<double>() + event.at("dur").get<double>();
  };
  EXPECT_LE(first.at("ts"), end(second));
  EXPECT_LE(second.at("ts"), end(first));
}

TEST_F(TraceMergeTest, TheBenchsWorkersBecomeOneFileToo) {
  const std::string whole = path("bench.json");
  RunningJob job({"CROSSDEVICE_TRACE=" + whole, CROSSDEVICE_BENCH_PROGRAM, "--workers", "2", "-b",
                  "4K", "-e", "4K", "-n", "1"},
                 "/usr/bin/env");
  EXPECT_EQ(job.finish(), 0) << job.err;
  std::ifstream file(whole);
  const nlohmann::json events = nlohmann::json::parse(file);
  EXPECT_THAT(find_trace_parts(whole), IsEmpty());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(find_of(events, "communicate", rank).is_null()) << rank;
    EXPECT_FALSE(find_of(events, "crossdevice_end", rank).is_null()) << rank;
  }
}

TEST_F(TraceMergeTest, PartsOfAJobThatLivesAreLeftAlone) {
  const std::string whole = path("whole.json");
  const std::string old = write("whole.json.0.1.part", "[\n" + bar("old", 1));
  const std::string live = write("whole.json.1.2.part", "[\n" + bar("live", 1));
  const int file = ::open(live.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX), 0);
  const JobTrace beside(whole);
  EXPECT_TRUE(std::filesystem::exists(live));
  EXPECT_TRUE(std::filesystem::exists(old));
  EXPECT_THAT(beside.variables(),
              ElementsAre(HasSubstr(whole + "." + std::to_string(::getpid()) + ".")));
  ::close(file);
  const JobTrace next(whole);  // that job has ended
  EXPECT_FALSE(std::filesystem::exists(live));
  EXPECT_FALSE(std::filesystem::exists(old));
}

TEST_F(TraceMergeTest, FilesOfOtherLaunchersAreMergedOnRequest) {
  const std::string one = write("one", "[\n" + clock("m", 0, 1'000'000) + bar("one", 10));
  const std::string two = write("two", "[\n" + clock("n", 600'000, 1'000'000) + bar("two", 620));
  const std::string whole = path("whole.json");
  const auto merge = [](const std::vector<std::string>& words) {
    RunningJob job(words);
    const int code = job.finish();
    return std::pair(code, job.err);
  };
  EXPECT_EQ(merge({"--merge-trace", whole, one, two}), std::pair(0, std::string()));
  std::ifstream file(whole);
  const nlohmann::json events = nlohmann::json::parse(file);
  EXPECT_DOUBLE_EQ(find_of(events, "one", 0).at("ts"), 10);
  EXPECT_DOUBLE_EQ(find_of(events, "two", 1).at("ts"), 20);
  EXPECT_TRUE(std::filesystem::exists(one));
  // The result's name was forgotten.
  const auto [code, said] = merge({"--merge-trace", one, two});
  EXPECT_EQ(code, 3);
  EXPECT_THAT(said, HasSubstr("is there already"));
  EXPECT_EQ(std::filesystem::file_size(one),
            clock("m", 0, 1'000'000).size() + bar("one", 10).size() + 2);
  // Not a timeline, or nothing at all: no half result stays.
  EXPECT_THAT(merge({"--merge-trace", path("new"), one, write("text", "words\n")}).second,
              HasSubstr("is no timeline"));
  EXPECT_THAT(merge({"--merge-trace", path("new"), one, path("absent")}).second,
              HasSubstr("cannot read"));
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

TEST_F(TraceMergeTest, APartThatCannotBeRemovedDoesNotHideTheTimeline) {
  const std::string whole = path("kept.json");
  const std::string part = path("kept.json.0.1.part");
  // A mount is what not even root removes.
  const std::string script = "touch " + part + " && mount --bind " + part + " " + part +
                             " && exec " + std::string(CROSSDEVICE_RUN_PROGRAM) + " -n 1 --trace " +
                             whole + " -- true";
  if (std::system("unshare --mount true 2>/dev/null") != 0) GTEST_SKIP() << "needs root";
  RunningJob job({"--mount", "sh", "-c", script}, "/usr/bin/unshare");
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.err, HasSubstr("is complete; its part " + part + " cannot be removed"));
  EXPECT_THAT(job.err, ::testing::Not(HasSubstr("no timeline")));
  EXPECT_TRUE(std::filesystem::exists(whole));
}

TEST_F(TraceMergeTest, ATimelineThatCannotBeWrittenIsRefusedBeforeTheJob) {
  const std::string ran = path("ran");
  const auto refusal = [&](const std::string& whole) {
    RunningJob job({"-n", "1", "--trace", whole, "--", "touch", ran});
    EXPECT_EQ(job.finish(), 3) << whole;
    EXPECT_FALSE(std::filesystem::exists(ran)) << whole;
    EXPECT_THAT(job.err, HasSubstr(whole));
    return job.err;
  };
  EXPECT_THAT(refusal(path("no_folder/t.json")), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal(path("")), HasSubstr("Is a directory"));
  // The result's name is as long as names can be, so those of the parts are too long.
  EXPECT_THAT(refusal(path(std::string(NAME_MAX, 'x'))), HasSubstr("File name too long"));
}

/// Until the new one is whole.
TEST_F(TraceMergeTest, AJobBeginsWithoutTouchingTheTimelineBeforeIt) {
  const std::string whole = write("whole.json", "before");
  const JobTrace over(whole);
  const JobTrace beside(path("new.json"));
  EXPECT_EQ(std::filesystem::file_size(whole), 6U);
  const auto entries = std::filesystem::directory_iterator(path(""));
  EXPECT_EQ(std::distance(std::filesystem::begin(entries), std::filesystem::end(entries)), 1);
}

TEST_F(TraceMergeTest, AResultThatCannotBeWrittenHasItsReason) {
  const std::string one = write("one", "[\n" + bar("one", 10));
  RunningJob job({"--merge-trace", path("no_folder/t.json"), one});
  EXPECT_EQ(job.finish(), 3);
  EXPECT_THAT(job.err, HasSubstr("No such file or directory"));
}

TEST_F(TraceMergeTest, AWorkerThatLeavesNothingIsNamed) {
  const std::string whole = path("none.json");
  RunningJob job({"-n", "2", "--trace", whole, "--", "true"});
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.err, HasSubstr("rank 0 has left nothing here"));
  EXPECT_THAT(job.err, HasSubstr("rank 1 has left nothing here"));
}

}  // namespace
}  // namespace crossdevice::run
