// SPDX-License-Identifier: Apache-2.0
// What programs show of what they do: the bars of a real timeline, and the messages at level info.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Bars = std::vector<nlohmann::json>;

constexpr double kRounding = 0.002;  // of numbers with three places

double begin_of(const nlohmann::json& bar) { return bar.at("ts"); }
double end_of(const nlohmann::json& bar) { return begin_of(bar) + bar.at("dur").get<double>(); }

/// The bench on a batch of 16 tensors; what it measures does not matter.
std::vector<std::string> batch(const std::string& size, const std::vector<std::string>& more) {
  std::vector<std::string> words{"--op", "batch_reduce", "-b", size, "-e", size, "-n", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Its standard error.
std::string run_bench(const std::vector<std::string>& arguments, const std::string& variable) {
  std::vector<std::string> words{variable, CROSSDEVICE_BENCH_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  RunningJob job(words, "/usr/bin/env");
  EXPECT_EQ(job.finish(), 0) << job.err;
  return job.err;
}

std::string timeline_path() {
  return ::testing::TempDir() + "crossdevice_bars_" + std::to_string(::getpid()) + ".json";
}

/// What a job has left there.
Bars take_bars() {
  const std::string path = timeline_path();
  std::ifstream file(path);
  const nlohmann::json events = nlohmann::json::parse(file);
  std::filesystem::remove(path);
  Bars bars;
  std::copy_if(events.begin(), events.end(), std::back_inserter(bars),
               [](const nlohmann::json& event) { return event.at("ph") == "X"; });
  return bars;
}

/// Its timeline.
Bars bars_of(const std::vector<std::string>& arguments) {
  (void)run_bench(arguments, "CROSSDEVICE_TRACE=" + timeline_path());
  return take_bars();
}

/// Two hosts with equally many workers, and by which algorithm messages between them carry few bytes, and many.
struct Hosts {
  int workers_each;
  std::string few;
  std::string many;
};

/// The timeline of workers that take themselves for those of two hosts.
Bars bars_of(const Hosts& hosts, const std::vector<std::string>& arguments) {
  const std::string tuning = timeline_path() + ".tuning";
  std::ofstream(tuning) << R"({"all_reduce": [{"up_to_bytes": 4096, "algorithm": ")" << hosts.few
                        << R"("}, {"algorithm": ")" << hosts.many << "\"}]}";
  const std::string each = std::to_string(hosts.workers_each);
  std::vector<std::string> words{
      "-n",
      std::to_string(2 * hosts.workers_each),
      "--trace",
      timeline_path(),
      "--",
      "sh",
      "-c",
      "export CROSSDEVICE_TUNING_FILE=" + tuning + " CROSSDEVICE_HOST_ID=$((CROSSDEVICE_RANK / " +
          each + ")) CROSSDEVICE_LOCAL_RANK=$((CROSSDEVICE_RANK % " + each +
          ")) CROSSDEVICE_LOCAL_NUM_WORKERS=" + each + "; exec \"$0\" \"$@\"",
      CROSSDEVICE_BENCH_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  RunningJob job(words);
  EXPECT_EQ(job.finish(), 0) << job.err;
  std::filesystem::remove(tuning);
  return take_bars();
}

const nlohmann::json& last(const Bars& bars, const std::string& name) {
  static const nlohmann::json none{{"pid", -1}, {"tid", -1}, {"ts", 0}, {"dur", 0}};
  const auto found = std::find_if(bars.rbegin(), bars.rend(), [&](const nlohmann::json& bar) {
    return bar.at("name") == name;
  });
  EXPECT_NE(found, bars.rend()) << name;
  return found == bars.rend() ? none : *found;
}

/// Those of that name on `outer`'s track while it lasts, in their order.
Bars inside(const Bars& bars, const std::string& name, const nlohmann::json& outer) {
  Bars found;
  std::copy_if(bars.begin(), bars.end(), std::back_inserter(found), [&](const nlohmann::json& bar) {
    return bar.at("name") == name && bar.at("pid") == outer.at("pid") &&
           bar.at("tid") == outer.at("tid") && begin_of(bar) + kRounding >= begin_of(outer) &&
           end_of(bar) <= end_of(outer) + kRounding;
  });
  std::sort(found.begin(), found.end(), [](const nlohmann::json& a, const nlohmann::json& b) {
    return begin_of(a) < begin_of(b);
  });
  return found;
}

struct PackCase {
  std::vector<std::string> arguments;
  std::string algorithm;
  std::size_t num_packs;
};

class ObservedPacksTest : public ::testing::TestWithParam<PackCase> {};

TEST_P(ObservedPacksTest, EachPackOfABatchIsABarInItsOperation) {
  const Bars bars = bars_of(GetParam().arguments);
  const nlohmann::json& operation = last(bars, "batch_reduce");
  const Bars packs = inside(bars, "pack of values", operation);
  ASSERT_EQ(packs.size(), GetParam().num_packs);
  std::size_t size_bytes = 0;
  for (std::size_t i = 0; i < packs.size(); ++i) {
    const nlohmann::json& arguments = packs[i].at("args");
    size_bytes += arguments.at("bytes").get<std::size_t>();
    EXPECT_EQ(arguments.at("dtype"), "float32");
    EXPECT_EQ(arguments.at("algorithm"), GetParam().algorithm);
    EXPECT_EQ(arguments.at("sequence"), operation.at("args").at("sequence"));
    if (i > 0) {
      EXPECT_LE(end_of(packs[i - 1]), begin_of(packs[i]) + kRounding) << "they overlap";
    }
  }
  EXPECT_EQ(size_bytes, operation.at("args").at("bytes").get<std::size_t>());
}

std::vector<PackCase> pack_cases() {
  const std::vector<std::string> hierarchical{"--ops",       "hierarchical_copy", "--devices",
                                              "CPU:0,CPU:1", "--num-packs",       "3"};
  return {
      {batch("1M", hierarchical), "hierarchical_copy", 3},
      // So few bytes that no other thread is woken.
      {batch("8K", hierarchical), "hierarchical_copy", 3},
      {batch("1M", {"--ops", "multi_worker", "--devices", "CPU:0,CPU:1", "--num-packs", "2"}),
       "scheduled", 2},
      // Packs of workers hold whole tensors, of 64 KiB, and are closed when they are beyond their size.
      {batch("1M", {"--workers", "2", "--bytes-per-pack", "200K"}), "shared_memory", 4}};
}

INSTANTIATE_TEST_SUITE_P(Ops, ObservedPacksTest, ::testing::ValuesIn(pack_cases()),
                         [](const ::testing::TestParamInfo<PackCase>& each) {
                           return each.param.algorithm + std::to_string(each.index);
                         });

TEST(ObservedJobTest, WorkersWaitsAreBarsToo) {
  const Bars bars = bars_of(batch("1M", {"--workers", "2"}));
  const auto has = [&](const std::string& name, int rank) {
    return std::any_of(bars.begin(), bars.end(), [&](const nlohmann::json& bar) {
      return bar.at("name") == name && bar.at("pid") == rank;
    });
  };
  for (const char* name : {"batch_reduce", "pack of values", "communicate"}) {
    EXPECT_TRUE(has(name, 0)) << name;
    EXPECT_TRUE(has(name, 1)) << name;
  }
  EXPECT_TRUE(has("wait", 0) || has("wait", 1));  // whoever comes last need not
}

/// Of an operation's bars those that name its parts, in their order: "pack shuffle 65536".
std::vector<std::string> parts_of(const Bars& bars, const nlohmann::json& operation) {
  Bars parts;
  for (const char* name : {"communicate", "pack", "reduce share", "unpack"}) {
    const Bars found = inside(bars, name, operation);
    parts.insert(parts.end(), found.begin(), found.end());
  }
  std::stable_sort(
      parts.begin(), parts.end(),
      [](const nlohmann::json& a, const nlohmann::json& b) { return begin_of(a) < begin_of(b); });
  std::vector<std::string> names;
  for (const nlohmann::json& part : parts) {
    const nlohmann::json& arguments = part.at("args");
    names.push_back(part.at("name").get<std::string>() + " " +
                    arguments.value("algorithm", "by nothing") + " " +
                    std::to_string(arguments.value("bytes", 0)));
  }
  return names;
}

/// The `wait`s in a reduction by messages, or in shared memory.
void expect_waits_say_how(const Bars& bars, const nlohmann::json& reduction) {
  for (const nlohmann::json& wait : inside(bars, "wait", reduction)) {
    const nlohmann::json& arguments = wait.at("args");
    EXPECT_EQ(arguments.value("algorithm", ""), reduction.at("args").at("algorithm"));
    EXPECT_GT(arguments.value("bytes", 0), 0);
  }
}

TEST(ObservedJobTest, WorkersOfOneMachineShowTheirParts) {
  const Bars bars = bars_of(batch("1M", {"--workers", "2", "--bytes-per-pack", "2M"}));
  const nlohmann::json& operation = last(bars, "batch_reduce");
  EXPECT_THAT(parts_of(bars, operation),
              ElementsAre("communicate shared_memory 1048576", "pack shared_memory 1048576",
                          "reduce share shared_memory 524288", "unpack shared_memory 1048576"));
  for (const nlohmann::json& each : inside(bars, "communicate", operation)) {
    expect_waits_say_how(bars, each);
  }
}

TEST(ObservedJobTest, WorkersOfSeveralMachinesShowTheirParts) {
  for (const Hosts& hosts : {Hosts{1, "exchange", "shuffle"}, Hosts{1, "doubling", "ring"}}) {
    for (const auto& [size, algorithm] : {std::pair("64", hosts.few), {"1M", hosts.many}}) {
      const Bars bars = bars_of(hosts, batch(size, {}));
      const nlohmann::json& operation = last(bars, "batch_reduce");
      const std::string bytes = " " + operation.at("args").at("bytes").dump();
      // Of few bytes each tensor takes a block of 64 in an exchange.
      const bool has_blocks = algorithm == "exchange";
      const std::string how = " " + algorithm + (has_blocks ? " 1024" : bytes);
      EXPECT_THAT(parts_of(bars, operation),
                  ElementsAre("communicate" + how, "pack" + how, "unpack" + how));
      for (const nlohmann::json& each : inside(bars, "communicate", operation)) {
        expect_waits_say_how(bars, each);
      }
    }
  }
}

// Beside others on its machine a worker reduces a share, which it exchanges with its like elsewhere, and takes the other shares.
TEST(ObservedJobTest, SeveralWorkersOnEachOfSeveralMachinesShowBothLevels) {
  const Hosts hosts{2, "exchange", "shuffle"};
  const Bars bars = bars_of(hosts, batch("1M", {}));
  const nlohmann::json& operation = last(bars, "batch_reduce");
  EXPECT_THAT(parts_of(bars, operation),
              ElementsAre("communicate two_level 1048576", "pack two_level 1048576",
                          "reduce share two_level 524288", "communicate shuffle 524288",
                          "pack two_level 524288", "unpack two_level 1048576"));

  const Bars small = bars_of(hosts, batch("64", {}));
  EXPECT_THAT(parts_of(small, last(small, "batch_reduce")),
              ElementsAre("communicate two_level 64", "communicate shared_memory 64",
                          "communicate exchange 1024", "unpack two_level 1024"));
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

TEST(ObservedJobTest, WhichAlgorithmAndWhyIsSaidOnce) {
  const auto said = [](const std::vector<std::string>& more, const std::string& what) {
    return count(run_bench(batch("64K", more), "CROSSDEVICE_LOG=info"), what);
  };
  const std::string devices = "CPU:0,CPU:1";
  EXPECT_EQ(said({"--workers", "2"},
                 "all-reduce by shared_memory, in one pass: all 2 workers are on one machine"),
            1U);
  EXPECT_EQ(said({"--devices", devices, "--ops", "reduction_to_one_device"},
                 "info: ReductionToOneDevice: direct, "),
            1U);
  EXPECT_EQ(said({"--devices", devices, "--ops", "hierarchical_copy"},
                 "info: HierarchicalCopyAllReduce: hierarchical_copy, "),
            1U);
  EXPECT_EQ(said({"--devices", devices, "--ops", "multi_worker"},
                 "info: MultiWorkerAllReduce: scheduled, by all_reduce_spec "),
            1U);
  EXPECT_THAT(run_bench(batch("64K", {"--devices", devices}), "CROSSDEVICE_LOG=warning"),
              Not(HasSubstr("info: ")));
}

}  // namespace
}  // namespace crossdevice::run
