// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/arguments.h"
#include "run/worker_environment.h"
#include "support/program.h"

namespace crossdevice::run {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::optional<Arguments> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "crossdevice-run");
  return parse_arguments(static_cast<int>(words.size()), words.data());
}

void expect_error(const std::vector<const char*>& words, const char* message) {
  EXPECT_THAT([&] { (void)parse(words); },
              ThrowsMessage<programs::ArgumentError>(HasSubstr(message)));
}

TEST(RunArgumentsTest, WhatFollowsTheDashesIsTheProgramsOwn) {
  const auto arguments = parse({"-n", "4", "--", "prog", "-n", "7", "--", "--help"});
  ASSERT_TRUE(arguments.has_value());
  EXPECT_EQ(arguments->num_workers, 4);
  EXPECT_EQ(arguments->grace.count(), 5);
  EXPECT_EQ(arguments->num_namespaces, 0);
  EXPECT_EQ(arguments->rank_prefix, RankPrefix::ALL_OUTPUT);
  EXPECT_EQ(arguments->when_one_fails, WhenOneFails::STOP_THE_OTHERS);
  EXPECT_EQ(arguments->binding, Binding::NONE);
  EXPECT_THAT(arguments->command, ElementsAre("prog", "-n", "7", "--", "--help"));
}

TEST(RunArgumentsTest, EveryOption) {
  const auto arguments =
      parse({"--workers", "256", "--grace-seconds", "0.5", "--netns", "2", "--rate", "200mbit",
             "--plain", "--keep-going", "--bind", "--", "prog"});
  ASSERT_TRUE(arguments.has_value());
  EXPECT_EQ(arguments->num_workers, 256);
  EXPECT_EQ(arguments->grace.count(), 0.5);
  EXPECT_EQ(arguments->num_namespaces, 2);
  EXPECT_EQ(arguments->rate, "200mbit");
  EXPECT_EQ(arguments->rank_prefix, RankPrefix::ERROR_OUTPUT);
  EXPECT_EQ(arguments->when_one_fails, WhenOneFails::KEEP_GOING);
  EXPECT_EQ(arguments->binding, Binding::OWN_CORES);
}

TEST(RunArgumentsTest, WrongOnesAreRefused) {
  expect_error({"--", "prog"}, "--workers");
  for (const char* number : {"0", "-1", "1025", "x", "1.5"}) {
    expect_error({"-n", number, "--", "prog"}, "");
  }
  expect_error({"-n", "1"}, "expected a program");
  expect_error({"-n", "1", "--"}, "expected a program");
  expect_error({"-n", "1", "prog"}, "prog: not expected; the program comes behind two dashes");
  expect_error({"-n", "1", "prog", "--slow"}, "prog: not expected; the program comes behind");
  expect_error({"-n", "1", "--slow", "3", "--", "prog"}, "--slow: there is no such option");
  expect_error({"--slow", "-n", "1", "prog"}, "the program's own come behind two dashes");
  expect_error({"-n", "1", "2", "--", "prog"}, "2: not expected before the two dashes");
  expect_error({"--hosts", "a:2", "--bind", "--", "prog"}, "--bind");
  expect_error({"-n", "1", "--grace-seconds", "-1", "--", "prog"}, "--grace-seconds");
  expect_error({"-n", "3", "--netns", "4", "--", "prog"}, "there are only 3 workers");
  expect_error({"-n", "1", "--netns", "251", "--", "prog"}, "--netns");
  expect_error({"-n", "1", "--rate", "1gbit", "--", "prog"}, "--rate needs --netns");
  for (const char* rate :
       {"1", "gbit", "1 gbit", "-1gbit", "0gbit", "1gb", "1001gbit", "1.5gbit"}) {
    expect_error({"-n", "1", "--netns", "1", "--rate", rate, "--", "prog"}, "--rate: expected");
  }
}

TEST(RunArgumentsTest, MergingNeedsNoProgramAndTakesNone) {
  const auto arguments = parse({"--merge-trace", "out", "one", "two"});
  ASSERT_TRUE(arguments.has_value());
  EXPECT_THAT(arguments->traces_to_merge, ElementsAre("out", "one", "two"));
  expect_error({"--merge-trace", "out"}, "--merge-trace");
  expect_error({"--merge-trace", "out", "one", "--", "prog"}, "does not go with a program");
  expect_error({"-n", "2", "--merge-trace", "out", "one"}, "does not go with --workers");
}

TEST(RunArgumentsTest, RatesInBitsPerSecond) {
  EXPECT_EQ(bits_per_second("1kbit"), 1e3);
  EXPECT_EQ(bits_per_second("200mbit"), 2e8);
  EXPECT_EQ(bits_per_second("1000gbit"), 1e12);
}

TEST(WorkerEnvironmentTest, OursReplaceWhatWasThere) {
  const std::vector<std::string> inherited{"PATH=/bin", "CROSSDEVICE_RANK=9",
                                           "CROSSDEVICE_LOG_LEVEL=info", "A=b=c",
                                           "CROSSDEVICE_LAUNCHER=slurm"};
  const std::vector<std::string> all = environment_of({.rank = 1,
                                                       .num_workers = 4,
                                                       .local_rank = 0,
                                                       .local_num_workers = 2,
                                                       .chief_address = "127.0.0.1:7",
                                                       .secret_file = "/tmp/s"},
                                                      inherited);
  EXPECT_THAT(
      all, ElementsAre("PATH=/bin", "CROSSDEVICE_LOG_LEVEL=info", "A=b=c", "CROSSDEVICE_RANK=1",
                       "CROSSDEVICE_NUM_WORKERS=4", "CROSSDEVICE_LOCAL_RANK=0",
                       "CROSSDEVICE_LOCAL_NUM_WORKERS=2", "CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:7",
                       "CROSSDEVICE_SECRET_FILE=/tmp/s", "CROSSDEVICE_LAUNCHER=crossdevice"));
  EXPECT_THAT(all, Not(Contains(StartsWith("CROSSDEVICE_HOST_ID"))));
  EXPECT_THAT(environment_of({.host_id = "h"}, inherited), Contains("CROSSDEVICE_HOST_ID=h"));
  EXPECT_THAT(environment_of({.interface = "e"}, inherited),
              Contains("CROSSDEVICE_SOCKET_IFNAME=e"));
}

}  // namespace
}  // namespace crossdevice::run
