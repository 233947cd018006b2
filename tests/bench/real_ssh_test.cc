// SPDX-License-Identifier: Apache-2.0
// crossdevice-run --hosts over OpenSSH itself: what remote_hosts_test.cc finds with a program in its place.
#include "bench/real_ssh.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/namespace_obstacle.h"
#include "bench/remote_job.h"
#include "bench/running_job.h"
#include "run/network_namespaces.h"

namespace crossdevice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RealSshTest : public RemoteJobTest {
 protected:
  void SetUp() override {
    const std::string why = RealSsh::obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
    // Those of this test, where somebody has come over ssh to run it. NOLINTNEXTLINE(concurrency-mt-unsafe)
    for (const char* const name : {"SSH_CONNECTION", "CROSSDEVICE_HOST_ID"}) ::unsetenv(name);
    ssh_.emplace();
  }
  [[nodiscard]] std::string shell() const override { return ssh_->shell(); }

  std::optional<RealSsh> ssh_;
};

TEST_F(RealSshTest, EveryWorkerKnowsWhoItIs) {
  RunningJob job(script("a:2,localhost:1,b:1",
                        "echo ${SSH_CONNECTION:+far} $CROSSDEVICE_HOST_ID "
                        "$CROSSDEVICE_RANK/$CROSSDEVICE_NUM_WORKERS "
                        "$CROSSDEVICE_LOCAL_RANK/$CROSSDEVICE_LOCAL_NUM_WORKERS"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] far a 0/4 0/2", "[1] far a 1/4 1/2",
                                                 "[2] 2/4 0/1", "[3] far b 3/4 0/1"));
  EXPECT_EQ(job.err, "");
}

TEST_F(RealSshTest, ArgumentsAndVariablesArriveByteForByte) {
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  ::setenv("ASKED_FOR", all.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  RunningJob job(on("a", {"--plain", "-x", "ASKED_FOR"},
                    {"sh", "-c", "printf '%s|' \"$@\" \"$ASKED_FOR\" \"$PWD\"", "name", all, ""}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out, all + "||" + all + "|" + std::filesystem::current_path().string() + "|\n");
  ::unsetenv("ASKED_FOR");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(RealSshTest, MuchGoesBothWays) {
  std::vector<std::string> program{"sh", "-c", "echo $#; head -c 3000000 /dev/zero | tr '\\0' x",
                                   "name"};
  program.resize(14, std::string(100'000, 'x'));
  RunningJob job(on("a,b", {}, program));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(std::count(job.out.begin(), job.out.end(), 'x'), 6'000'000);
  EXPECT_THAT(job.out, HasSubstr("[0] 10\n"));
  EXPECT_THAT(job.out, HasSubstr("[1] 10\n"));
}

TEST_F(RealSshTest, TheFirstFailureEndsTheJobOnAllHosts) {
  for (const auto& [end, code] : {std::pair{"exit 7", 7}, {"kill -SEGV $$", 139}}) {
    RunningJob job(script("localhost:1,a:2,b:1", std::string("[ $CROSSDEVICE_RANK = 3 ] && ") +
                                                     end + "; exec sleep 1000"));
    EXPECT_EQ(job.finish(), code) << job.err;
    EXPECT_THAT(job.err, HasSubstr("crossdevice-run: rank 3"));
  }
}

TEST_F(RealSshTest, SignalsGoToEveryWorker) {
  expect_signal_goes_to_every_worker(SIGUSR1, "USR1");
  expect_signal_goes_to_every_worker(SIGINT, "INT");
}

TEST_F(RealSshTest, WhoIsNotLetInIsNamed) {
  RunningJob job(script("a,stranger@b", "exec sleep 1000"));
  EXPECT_EQ(job.finish(), 255);
  EXPECT_THAT(job.err, HasSubstr("Permission denied"));
  EXPECT_THAT(job.err, HasSubstr("the remote shell to host stranger@b ended with status 255"));
}

TEST_F(RealSshTest, AHostThatHasAnotherKeyGetsNoJob) {
  ssh_->forget_the_host();
  RunningJob job(script("a", "echo here"));
  EXPECT_EQ(job.finish(), 255);
  EXPECT_EQ(job.out, "");
  EXPECT_THAT(job.err, HasSubstr("Host key verification failed"));
}

TEST_F(RealSshTest, AConnectionThatIsLostEndsTheJob) {
  RunningJob job(script("a:2,b:2", "echo ready; exec sleep 1000"));
  ASSERT_TRUE(job.read_until("ready", 4)) << job.err;
  ::kill(job.workers().at(1), SIGKILL);
  EXPECT_EQ(job.finish(), 137);
  EXPECT_THAT(job.err, HasSubstr("host b was ended by signal 9 (SIGKILL); stopping the others"));
}

TEST_F(RealSshTest, NothingIsLeftWhenTheLauncherIsKilled) {
  expect_nothing_is_left_when_the_launcher_is_killed();
}

TEST_F(RealSshTest, WorkersEndWhereNothingIsHeardOfTheLauncher) {
  expect_workers_end_unheard([](const RunningJob& job) { return job.workers().at(0); });
}

/// A host that hears nothing but that this one is there goes on.
TEST_F(RealSshTest, WorkersGoOnWhereNothingIsToBeSaid) {
  RunningJob job(script("a", "sleep 9; echo done", {"--host-silence-seconds", "4"}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out, "[0] done\n");
}

/// Two hosts with a network of their own: "10.200.0.1" and "10.200.0.2".
TEST(RealSshNamespacesTest, WorkersSumAcrossHosts) {
  for (const std::string& why : {RealSsh::obstacle(), namespace_obstacle()}) {
    if (!why.empty()) GTEST_SKIP() << why;
  }
  const NetworkNamespaces namespaces(2, "");
  const RealSsh ssh("nsenter --net=$folder/$host");
  for (int i = 0; i < 2; ++i) {
    std::filesystem::create_symlink(
        fmt::format("/proc/{}/fd/{}", ::getpid(), namespaces.descriptor(i)),
        ssh.folder() + "/" + NetworkNamespaces::address(i));
  }
  RunningJob job({"--hosts", "10.200.0.1:2,10.200.0.2:2", "--remote-shell", ssh.shell(), "--",
                  CROSSDEVICE_SUMMING_WORKER});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] local 0 of 2: 0 wrong", "[1] local 1 of 2: 0 wrong",
                          "[2] local 0 of 2: 0 wrong", "[3] local 1 of 2: 0 wrong"));
}

}  // namespace
}  // namespace crossdevice::run
