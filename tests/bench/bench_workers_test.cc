// SPDX-License-Identifier: Apache-2.0
// crossdevice-bench --workers as users start it: one table, one file, and one end for all.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/namespace_obstacle.h"
#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BenchWorkersTest : public ::testing::Test {
 protected:
  BenchWorkersTest()
      : json_(std::filesystem::path(::testing::TempDir()) /
              ("bench_workers_test_" + std::to_string(::getpid()) + ".json")) {}
  ~BenchWorkersTest() override { std::filesystem::remove(json_); }

  /// Few and small.
  [[nodiscard]] std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"-b", "8", "-e", "32K", "-f",     "64",
                                 "-n", "5", "-w", "1",   "--json", json_};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] nlohmann::json rows() const {
    nlohmann::json all;
    std::ifstream(json_) >> all;
    return all;
  }

 private:
  std::string json_;
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST_F(BenchWorkersTest, ATableThatIsLostIsNoSuccess) {
  RunningJob job({"-c", std::string(CROSSDEVICE_BENCH_PROGRAM) + " -g 1 -b 8 -e 8 > /dev/full"},
                 "/bin/sh");
  EXPECT_EQ(job.finish(), 3);
  EXPECT_EQ(job.err, "crossdevice-bench: standard output could not be written\n");
}

TEST_F(BenchWorkersTest, OneTableAndOneFile) {
  RunningJob job(arguments({"--workers", "2"}), CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.err, "");
  EXPECT_EQ(count(job.out, "# crossdevice-bench"), 1);
  EXPECT_THAT(job.out, HasSubstr("# 2 workers on 1 host; the devices are each worker's"));
  EXPECT_THAT(job.out, HasSubstr("Wrong values         : 0 OK"));
  EXPECT_THAT(job.out, HasSubstr("by all workers at once"));
  EXPECT_THAT(job.out, Not(HasSubstr("[0]")));
  const nlohmann::json all = rows();
  ASSERT_EQ(all.size(), 6U);
  std::set<int> sizes;
  for (const nlohmann::json& row : all) {
    EXPECT_EQ(row["op"], "all_reduce");
    EXPECT_EQ(row["ops"], "collective_all_reduce");
    EXPECT_EQ(row["devices"], 2);
    EXPECT_EQ(row["workers"], 2);
    EXPECT_EQ(row["hosts"], 1);
    EXPECT_EQ(row["namespaces"], 0);
    EXPECT_TRUE(row["rate"].is_null());
    EXPECT_EQ(row["memory"], "pool");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["limit"], row["in_place"] ? "in_place_scale" : "non_temporal_copy");
    EXPECT_GT(row["limit_gbs"], 0);
    EXPECT_GT(row["time_us_median"], 0);
    EXPECT_LE(row["time_us_p10"], row["time_us_median"]);
    EXPECT_LE(row["time_us_median"], row["time_us_p99"]);
    EXPECT_DOUBLE_EQ(row["busbw_gbs"], row["algbw_gbs"]);  // 2 (n - 1) / n = 1
    sizes.insert(row["size_bytes"].get<int>());
  }
  EXPECT_EQ(sizes, (std::set<int>{8, 512, 32768}));
}

TEST_F(BenchWorkersTest, ExplainsInsteadOfMeasuring) {
  RunningJob job({"--workers", "2", "--explain", "-b", "8", "-e", "1M", "-f", "1024"},
                 CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("     8 B  slots of shared memory"));
  EXPECT_THAT(job.out, HasSubstr("   8 KiB  direct reduction in shared memory"));
  EXPECT_THAT(job.out, HasSubstr("   packs  a list that is there as a whole: one pack; "));
  EXPECT_THAT(job.out, Not(HasSubstr("#wrong")));
  RunningJob alone({"--explain"}, CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_NE(alone.finish(), 0);
  EXPECT_THAT(alone.err, HasSubstr("add --workers"));
}

TEST_F(BenchWorkersTest, DevicesAreEachWorkers) {
  RunningJob job(arguments({"--workers", "3", "-g", "2", "--foreign", "-o", "max"}),
                 CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  const nlohmann::json all = rows();
  ASSERT_EQ(all.size(), 6U);
  for (const nlohmann::json& row : all) {
    EXPECT_EQ(row["devices"], 6);
    EXPECT_EQ(row["workers"], 3);
    EXPECT_EQ(row["memory"], "foreign");
    EXPECT_EQ(row["redop"], "MAX");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_NEAR(row["busbw_gbs"], row["algbw_gbs"].get<double>() * 10 / 6, 1e-9);
  }
}

TEST_F(BenchWorkersTest, ABatchIsHeldAgainstTheFlatBuffer) {
  RunningJob job({"--workers", "2", "-n", "5", "-w", "1", "--gradients",
                  CROSSDEVICE_WORKLOADS_DIR "/vgg16.csv", "-c", "0", "-d", "int8"},
                 CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("one flat buffer of the same bytes: out-of-place"));
}

TEST_F(BenchWorkersTest, RunsUnderALauncher) {
  std::vector<std::string> command{"-n", "2", "--plain", "--", CROSSDEVICE_BENCH_PROGRAM};
  for (const std::string& word : arguments({})) command.push_back(word);
  RunningJob job(command);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(count(job.out, "# crossdevice-bench"), 1);
  for (const nlohmann::json& row : rows()) EXPECT_EQ(row["workers"], 2);

  command.insert(command.end(), {"--workers", "3"});
  RunningJob other_number(command);
  EXPECT_EQ(other_number.finish(), 2);
  EXPECT_THAT(other_number.err, HasSubstr("--workers 3: this is one of 2 workers"));
}

TEST_F(BenchWorkersTest, OneWorkerIsAClusterOfItsOwn) {
  RunningJob job(arguments({"--workers", "1"}), CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  for (const nlohmann::json& row : rows()) {
    EXPECT_EQ(row["workers"], 1);
    EXPECT_EQ(row["ops"], "collective_all_reduce");
  }
}

TEST_F(BenchWorkersTest, AWorkerThatFailsEndsAllWithItsStatus) {
  RunningJob launched({"-n", "3", "--", "sh", "-c",
                       "[ $CROSSDEVICE_RANK = 1 ] && exit 7; exec " CROSSDEVICE_BENCH_PROGRAM
                       " -b 8 -e 8 -n 1000000000"});
  EXPECT_EQ(launched.finish(), 7);

  RunningJob job({"--workers", "3", "-b", "8", "-e", "8", "-n", "1000000000"},
                 CROSSDEVICE_BENCH_PROGRAM);
  ASSERT_TRUE(job.read_until("(elements)"));
  const std::vector<pid_t> workers = job.workers();
  ASSERT_EQ(workers.size(), 3U);
  ASSERT_EQ(::kill(workers[0], SIGKILL), 0);
  EXPECT_EQ(job.finish(), 128 + SIGKILL);
  EXPECT_THAT(job.err, HasSubstr("rank 0 was ended by signal 9 (SIGKILL)"));
}

TEST_F(BenchWorkersTest, AFileThatCannotBeWrittenIsBadArguments) {
  RunningJob job({"--workers", "2", "-b", "8", "-e", "8", "--json", "/nonexistent/rows.json"},
                 CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 2);
  EXPECT_THAT(job.err, HasSubstr("cannot write /nonexistent/rows.json"));
  RunningJob launched({"-n", "2", "--", CROSSDEVICE_BENCH_PROGRAM, "-b", "8", "-e", "8", "--json",
                       "/nonexistent/rows.json"});
  EXPECT_EQ(launched.finish(), 2);
  EXPECT_THAT(launched.err,
              HasSubstr("[0] crossdevice-bench: cannot write /nonexistent/rows.json"));
}

TEST_F(BenchWorkersTest, NamespacesAreNamedInTheRows) {
  const std::string why = namespace_obstacle();
  if (!why.empty()) GTEST_SKIP() << why;
  RunningJob job(arguments({"--workers", "3", "--netns", "2"}), CROSSDEVICE_BENCH_PROGRAM);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("# 3 workers on 2 hosts, which are network namespaces"));
  for (const nlohmann::json& row : rows()) {
    EXPECT_EQ(row["hosts"], 2);
    EXPECT_EQ(row["namespaces"], 2);
    EXPECT_TRUE(row["limit"].is_null());
    EXPECT_TRUE(row["percent_of_limit"].is_null());
    EXPECT_EQ(row["wrong"], 0);
  }
}

}  // namespace
}  // namespace crossdevice::run
