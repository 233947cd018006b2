// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers encrypt what they say to each other, or do not agree about that, with real processes.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::HasSubstr;

/// Two summing workers on two hosts, as far as they know, so that tensors travel over TCP; each after `script`, which sets its variables.
std::vector<std::string> summing(const std::string& script) {
  return {"-n",
          "2",
          "--",
          "sh",
          "-c",
          "export CROSSDEVICE_HOST_ID=host$CROSSDEVICE_RANK CROSSDEVICE_TRANSPORT=tcp; " + script +
              " exec " CROSSDEVICE_SUMMING_WORKER};
}

TEST(TlsJobTest, EncryptedWorkersSum) {
  RunningJob job(summing("export CROSSDEVICE_TLS=1;"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("[0] local 0 of 1: 0 wrong"));
  EXPECT_THAT(job.out, HasSubstr("[1] local 0 of 1: 0 wrong"));
  EXPECT_EQ(job.err, "");
}

TEST(TlsJobTest, WorkersThatDoNotAgreeSaySoAtOnce) {
  for (const char* who : {"$CROSSDEVICE_RANK", "$((1 - CROSSDEVICE_RANK))"}) {
    const bool is_chief_plain = std::string(who) == "$CROSSDEVICE_RANK";
    RunningJob job(summing("export CROSSDEVICE_TLS=" + std::string(who) + ";"));
    EXPECT_NE(job.finish(), 0);
    const std::string here = "CROSSDEVICE_TLS=1 is set here, but not there: all workers must agree";
    const std::string there =
        "CROSSDEVICE_TLS=1 is set there, but not here: all workers must agree";
    EXPECT_THAT(job.err, HasSubstr("[0] crossdevice: warning: the chief (rank 0) refused a "
                                   "connection from 127.0.0.1"));
    EXPECT_THAT(job.err, HasSubstr(is_chief_plain ? there : here));
    EXPECT_THAT(job.err, HasSubstr("[1] this worker and the chief at "));
    EXPECT_THAT(job.err, HasSubstr(is_chief_plain ? here : there));
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
