// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers encrypt what they say to each other, or do not agree about that, with real processes.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::HasSubstr;

/// Two workers that are on two hosts, as far as they know, so that tensors travel over TCP; each runs `script`.
std::vector<std::string> two_hosts(const std::string& script) {
  return {"-n",
          "2",
          "--",
          "sh",
          "-c",
          "export CROSSDEVICE_HOST_ID=host$CROSSDEVICE_RANK CROSSDEVICE_TRANSPORT=tcp; " + script};
}

/// Two summing workers, each after `script`, which sets its variables.
std::vector<std::string> summing(const std::string& script) {
  return two_hosts(script + " exec " CROSSDEVICE_SUMMING_WORKER);
}

TEST(TlsJobTest, EncryptedWorkersSum) {
  RunningJob job(summing("export CROSSDEVICE_TLS=1;"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("[0] local 0 of 1: 0 wrong"));
  EXPECT_THAT(job.out, HasSubstr("[1] local 0 of 1: 0 wrong"));
  EXPECT_EQ(job.err, "");
}

TEST(TlsJobTest, WorkersThatDoNotAgreeSaySoAtOnce) {
  const std::string here = "CROSSDEVICE_TLS=1 is set here, but not there: all workers must agree";
  const std::string there = "CROSSDEVICE_TLS=1 is set there, but not here: all workers must agree";
  for (const bool is_chief_plain : {true, false}) {
    // A worker that has failed stays as a sleeper: where it ended, the chief could be stopped for it before it has written its line.
    RunningJob job(two_hosts("export CROSSDEVICE_TLS=$((CROSSDEVICE_RANK " +
                             std::string(is_chief_plain ? "== 1" : "== 0") +
                             ")); " CROSSDEVICE_SUMMING_WORKER " || exec sleep 600"));
    const std::string of_chief =
        "[0] crossdevice: warning: the chief (rank 0) refused a connection from 127.0.0.1";
    const std::string of_worker = "[1] this worker and the chief at ";
    EXPECT_TRUE(job.read_error_until(of_chief)) << job.err;
    EXPECT_TRUE(job.read_error_until(is_chief_plain ? there : here)) << job.err;
    EXPECT_TRUE(job.read_error_until(of_worker)) << job.err;
    EXPECT_TRUE(job.read_error_until(is_chief_plain ? here : there)) << job.err;
    job.send(SIGTERM);
    EXPECT_NE(job.finish(), 0);
  }
}

TEST(TlsJobTest, WhatCannotBeEncryptedIsRefused) {
  RunningJob without_secret(summing("export CROSSDEVICE_TLS=1; export CROSSDEVICE_SECRET_FILE=;"));
  EXPECT_NE(without_secret.finish(), 0);
  EXPECT_THAT(without_secret.err,
              HasSubstr("CROSSDEVICE_TLS=1 needs a secret: set CROSSDEVICE_SECRET_FILE"));
  RunningJob over_ucx(summing("export CROSSDEVICE_TLS=1; export CROSSDEVICE_TRANSPORT=ucx;"));
  EXPECT_NE(over_ucx.finish(), 0);
  EXPECT_THAT(over_ucx.err, HasSubstr("CROSSDEVICE_TLS=1 encrypts TCP, not UCX"));
}

}  // namespace
}  // namespace crossdevice::run
