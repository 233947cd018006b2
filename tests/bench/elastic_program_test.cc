// SPDX-License-Identifier: Apache-2.0
// crossdevice-train --elastic under crossdevice-run --keep-going, as docs/workers.md starts it: a worker is killed, and the others go on.
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/running_job.h"
#include "bench/small_data_set.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;

constexpr int kWorkers = 3;
constexpr int kEpochs = 150;

std::vector<std::string> command(const train::TemporaryDirectory& data, int workers = kWorkers) {
  return {"-n",
          std::to_string(workers),
          "--keep-going",
          "--",
          CROSSDEVICE_TRAIN_PROGRAM,
          "--elastic",
          "--data",
          data.path().string(),
          "--devices",
          "CPU:0",
          "--hidden",
          "20",
          "--epochs",
          std::to_string(kEpochs),
          "--batch-size",
          "64",
          "--learning-rate",
          "0.1"};
}

/// The number behind `what` in what the job has printed.
double number_after(const std::string& what, const std::string& text) {
  const std::size_t at = text.rfind(what);
  if (at == std::string::npos) return -1;
  return std::strtod(text.c_str() + at + what.size(), nullptr);
}

/// Every epoch once, in their order, whoever told of it.
void expect_every_epoch(const std::string& out) {
  const std::regex line("epoch ([0-9]+)/" + std::to_string(kEpochs) + ": loss");
  int expected = 0;
  for (auto it = std::sregex_iterator(out.begin(), out.end(), line); it != std::sregex_iterator();
       ++it) {
    EXPECT_EQ(std::stoi((*it)[1]), ++expected);
  }
  EXPECT_EQ(expected, kEpochs);
}

class ElasticProgram : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ElasticProgram, ::testing::Values(0, 1, kWorkers - 1),
                         [](const auto& rank) { return "Rank" + std::to_string(rank.param); });

TEST_P(ElasticProgram, TheOthersGoOnWhenOneIsKilled) {
  const train::TemporaryDirectory data;
  train::write_small_data_set(data.path(), {.num_train = 4000, .num_test = 500});
  run::RunningJob job(command(data));
  ASSERT_TRUE(job.read_until("epoch 2/")) << job.out << job.err;
  const std::vector<pid_t> workers = job.workers();
  ASSERT_EQ(workers.size(), static_cast<std::size_t>(kWorkers));
  ASSERT_EQ(::kill(workers[static_cast<std::size_t>(GetParam())], SIGKILL), 0);
  EXPECT_EQ(job.finish(), 0) << job.out << job.err;
  EXPECT_THAT(job.err, HasSubstr(fmt::format("rank {} was ended by signal 9 (SIGKILL); the others "
                                             "go on\n",
                                             GetParam())));
  EXPECT_THAT(job.err, HasSubstr("; 2 workers go on, in epoch "));
  EXPECT_THAT(job.err, HasSubstr(" of its steps\n"));
  EXPECT_THAT(job.err, HasSubstr(fmt::format("rank {}", GetParam())));
  expect_every_epoch(job.out);
  EXPECT_THAT(job.out, HasSubstr(", the same on every replica\n"));
  // As well as undisturbed, of which elastic_training_test compares the weights.
  EXPECT_GT(number_after("test accuracy ", job.out), 90) << job.out;
}

/// The workers of a job that has come so far that they train.
std::vector<pid_t> training_workers(run::RunningJob& job) {
  EXPECT_TRUE(job.read_until("epoch 2/")) << job.out << job.err;
  return job.workers();
}

TEST(ElasticProgramTest, MoreWorkersThanThereAreCannotBeNeeded) {
  const train::TemporaryDirectory data;
  train::write_small_data_set(data.path(), {.num_train = 400, .num_test = 50});
  std::vector<std::string> arguments = command(data, 2);
  arguments.insert(arguments.end(), {"--min-workers", "3"});
  run::RunningJob job(arguments);
  EXPECT_NE(job.finish(), 0) << job.out;
  EXPECT_THAT(job.err, HasSubstr("--min-workers is 3, more than there are workers: 2"));
}

TEST(ElasticProgramTest, WhereTooFewAreLeftTheOptionIsNamed) {
  const train::TemporaryDirectory data;
  train::write_small_data_set(data.path(), {.num_train = 4000, .num_test = 500});
  run::RunningJob job(command(data, 2));
  const std::vector<pid_t> workers = training_workers(job);
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_EQ(::kill(workers[1], SIGKILL), 0);
  EXPECT_NE(job.finish(), 0) << job.out;
  EXPECT_THAT(job.err, HasSubstr("1 of 2 workers are left, 2 are needed"));
  EXPECT_THAT(job.err, HasSubstr("; --min-workers 1 lets so few go on"));
}

// As crossdevice-run goes on calling it.
TEST(ElasticProgramTest, WhoIsLostLaterIsCalledWhatItWasAtTheStart) {
  const train::TemporaryDirectory data;
  train::write_small_data_set(data.path(), {.num_train = 4000, .num_test = 500});
  run::RunningJob job(command(data, 4));
  const std::vector<pid_t> workers = training_workers(job);
  ASSERT_EQ(workers.size(), 4U);
  ASSERT_EQ(::kill(workers[1], SIGKILL), 0);
  ASSERT_TRUE(job.read_error_until("; 3 workers go on")) << job.err;
  ASSERT_EQ(::kill(workers[2], SIGKILL), 0);
  EXPECT_EQ(job.finish(), 0) << job.out << job.err;
  EXPECT_THAT(job.err, HasSubstr("rank 1 (of epoch 2; rank 2 at the start)"));
  EXPECT_THAT(job.err, HasSubstr("; 2 workers go on, in epoch "));
}

}  // namespace
}  // namespace crossdevice
