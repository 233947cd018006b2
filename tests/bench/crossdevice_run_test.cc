// SPDX-License-Identifier: Apache-2.0
// crossdevice-run as users start it, with real processes: how jobs end, what is shown, and that nothing is left.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "crossdevice/core/usable_cores.h"

#include "bench/awaited_file.h"
#include "bench/running_job.h"

namespace crossdevice::run {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// N workers that run a script. Those that end by SIGTERM have time for it, however slow the machine is.
std::vector<std::string> shell(int workers, const std::string& script,
                               const std::vector<std::string>& options = {"--grace-seconds",
                                                                          "100"}) {
  std::vector<std::string> arguments{"-n", std::to_string(workers)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const char* word : {"--", "sh", "-c"}) arguments.emplace_back(word);
  arguments.push_back(script);
  return arguments;
}

/// The rank's own lines, without the prefix, in order.
std::vector<std::string> lines_of(const std::string& text, int rank) {
  const std::string prefix = "[" + std::to_string(rank) + "] ";
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(prefix)) lines.push_back(line.substr(prefix.size()));
  }
  return lines;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

TEST(CrossdeviceRunTest, BoundWorkersHaveCoresOfTheirOwn) {
  const std::string say = "grep Cpus_allowed_list: /proc/self/status";
  RunningJob one(shell(1, say, {"--bind"}));
  ASSERT_EQ(one.finish(), 0) << one.err;
  RunningJob unbound(shell(2, say));
  ASSERT_EQ(unbound.finish(), 0) << unbound.err;
  EXPECT_EQ(lines_of(unbound.out, 0), lines_of(unbound.out, 1));
  EXPECT_EQ(lines_of(unbound.out, 0), lines_of(one.out, 0));  // all of them
  RunningJob two(shell(2, say, {"--bind"}));
  ASSERT_EQ(two.finish(), 0) << two.err;
  if (detail::usable_cores().size() < 2) GTEST_SKIP() << "one core";
  EXPECT_NE(lines_of(two.out, 0), lines_of(two.out, 1));
}

TEST(CrossdeviceRunTest, EveryWorkerKnowsWhoItIs) {
  RunningJob job(shell(3,
                       "echo $CROSSDEVICE_RANK/$CROSSDEVICE_NUM_WORKERS "
                       "$CROSSDEVICE_LOCAL_RANK/$CROSSDEVICE_LOCAL_NUM_WORKERS "
                       "$CROSSDEVICE_LAUNCHER"));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(
      sorted_lines(job.out),
      ElementsAre("[0] 0/3 0/3 crossdevice", "[1] 1/3 1/3 crossdevice", "[2] 2/3 2/3 crossdevice"));
  EXPECT_EQ(job.err, "");
}

TEST(CrossdeviceRunTest, TheSecretIsSharedPrivateAndRemoved) {
  RunningJob job(shell(2,
                       "stat -c '%a %n' $CROSSDEVICE_SECRET_FILE; cat $CROSSDEVICE_SECRET_FILE; "
                       "echo $CROSSDEVICE_CHIEF_ADDRESS"));
  EXPECT_EQ(job.finish(), 0);
  const std::vector<std::string> lines = lines_of(job.out, 0);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines, lines_of(job.out, 1));
  EXPECT_EQ(lines[0].substr(0, 4), "600 ");
  EXPECT_FALSE(exists(lines[0].substr(4)));
  EXPECT_EQ(lines[1].size(), 64U);
  EXPECT_EQ(lines[2].substr(0, 10), "127.0.0.1:");
  RunningJob other(shell(1, "cat $CROSSDEVICE_SECRET_FILE"));
  EXPECT_EQ(other.finish(), 0);
  EXPECT_NE(lines_of(other.out, 0).at(0), lines[1]);
}

TEST(CrossdeviceRunTest, WorkersMeet) {
  RunningJob job({"-n", "4", "--", CROSSDEVICE_MEETING_WORKER});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] rank 0 of 4, local 0 of 4: 0,1,2,3,",
                                                 "[1] rank 1 of 4, local 1 of 4: 0,1,2,3,",
                                                 "[2] rank 2 of 4, local 2 of 4: 0,1,2,3,",
                                                 "[3] rank 3 of 4, local 3 of 4: 0,1,2,3,"));
}

TEST(CrossdeviceRunTest, PlainOutputHasNoRank) {
  RunningJob job(shell(2, "echo out; echo err >&2", {"--plain"}));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(job.out, "out\nout\n");
  EXPECT_THAT(sorted_lines(job.err), ElementsAre("[0] err", "[1] err"));
}

TEST(CrossdeviceRunTest, AWorkerInheritsNothingButItsOutput) {
  RunningJob job(
      shell(1, "ls -x /proc/self/fd; cat; echo end"));  // ls has the directory open itself
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(job.out, "[0] 0  1  2  3\n[0] end\n");
}

TEST(CrossdeviceRunTest, TheFirstFailureIsTheJobs) {
  const std::string sleep = "; exec sleep 1000";
  struct Case {
    std::string script;
    int code;
    std::string message;
  };
  for (const Case& each : {Case{"exit 7", 7, "rank 1 ended with status 7; stopping the others"},
                           Case{"exit 255", 255, "rank 1 ended with status 255"},
                           Case{"kill -SEGV $$", 139, "rank 1 was ended by signal 11 (SIGSEGV)"},
                           Case{"kill -KILL $$", 137, "rank 1 was ended by signal 9 (SIGKILL)"}}) {
    RunningJob job(shell(3, "[ $CROSSDEVICE_RANK = 1 ] && " + each.script + sleep));
    EXPECT_EQ(job.finish(), each.code);
    EXPECT_THAT(job.err, HasSubstr("crossdevice-run: " + each.message));
  }
  RunningJob alone(shell(1, "exit 3"));
  EXPECT_EQ(alone.finish(), 3);
  EXPECT_EQ(alone.err, "crossdevice-run: rank 0 ended with status 3\n");
}

TEST(CrossdeviceRunTest, ACrashCountsBeforeThoseWhoNoticed) {
  const std::string ready =
      ::testing::TempDir() + "crossdevice_run_test_" + std::to_string(::getpid());
  const std::string script = "if [ $CROSSDEVICE_RANK = 1 ]; then while [ ! -e " + ready +
                             " ]; do sleep 0.01; done; exit 5; fi; ";
  for (const auto& [number, code] :
       std::map<std::string, int>{{"KILL", 137}, {"SEGV", 139}, {"ABRT", 5}}) {
    RunningJob job(shell(2, script + "trap 'kill -" + number + " $$' TERM; touch " + ready +
                                "; while :; do sleep 0.01; done"));
    EXPECT_EQ(job.finish(), code) << number;
    EXPECT_THAT(job.err, HasSubstr("rank 1 ended with status 5; stopping the others"));
    EXPECT_EQ(job.err.find("rank 0 was ended by signal") != std::string::npos, code != 5);
    ::unlink(ready.c_str());
  }
}

TEST(CrossdeviceRunTest, AWorkerThatEndsWellDisturbsNobody) {
  RunningJob job(shell(3, "[ $CROSSDEVICE_RANK = 1 ] || sleep 0.2; echo done"));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(sorted_lines(job.out).size(), 3U);
}

TEST(CrossdeviceRunTest, TheOthersGoOnWhereThatIsAskedFor) {
  const AwaitedFile one_has_ended;
  RunningJob job(shell(
      3, "[ $CROSSDEVICE_RANK = 1 ] && kill -KILL $$; " + one_has_ended.awaited() + "; echo done",
      {"--keep-going"}));
  ASSERT_TRUE(job.read_error_until("; the others go on\n"));
  one_has_ended.appear();
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] done", "[2] done"));
  EXPECT_EQ(job.err, "crossdevice-run: rank 1 was ended by signal 9 (SIGKILL); the others go on\n");
}

TEST(CrossdeviceRunTest, WhereNoneEndsWellTheFirstFailureIsTheJobs) {
  const AwaitedFile one_has_ended;
  RunningJob nobody(
      shell(2, "[ $CROSSDEVICE_RANK = 0 ] && exit 5; " + one_has_ended.awaited() + "; exit 6",
            {"--keep-going"}));
  ASSERT_TRUE(nobody.read_error_until("rank 0 ended with status 5; the others go on\n"));
  one_has_ended.appear();
  EXPECT_EQ(nobody.finish(), 5);
  EXPECT_THAT(nobody.err, HasSubstr("rank 1 ended with status 6\n"));
}

TEST(CrossdeviceRunTest, ASignalEndsAlsoThoseThatWouldGoOn) {
  RunningJob interrupted(
      shell(2, "echo ready; exec sleep 1000", {"--keep-going", "--grace-seconds", "100"}));
  ASSERT_TRUE(interrupted.read_until("ready", 2));
  interrupted.send(SIGTERM);
  EXPECT_EQ(interrupted.finish(), 128 + SIGTERM);
}

TEST(CrossdeviceRunTest, AWorkerThatHangsAfterTheOthersIsSpokenOf) {
  RunningJob job(shell(3, "[ $CROSSDEVICE_RANK = 1 ] || exit 0; echo pid=$$; kill -STOP $$",
                       {"--keep-going", "--plain"}));
  ASSERT_TRUE(job.read_until("\n"));
  const std::string pid = job.out.substr(job.out.find('=') + 1);
  ASSERT_TRUE(job.read_error_until("crossdevice-run: waiting for "));  // after 10 s
  job.send(SIGKILL);
  job.wait_for_everybody();
  EXPECT_EQ(job.err,
            "crossdevice-run: waiting for rank 1 (pid " + pid.substr(0, pid.find('\n')) + ")\n");
}

TEST(CrossdeviceRunTest, AProgramThatCannotRun) {
  RunningJob absent({"-n", "2", "--", "/nonexistent/program"});
  EXPECT_EQ(absent.finish(), 127);
  EXPECT_EQ(absent.err,
            "crossdevice-run: cannot run /nonexistent/program: No such file or directory\n");
  RunningJob no_program({"-n", "2", "--", "/etc/passwd"});
  EXPECT_EQ(no_program.finish(), 126);
  std::string folder = "/tmp/crossdevice_run_test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  std::filesystem::create_symlink("/bin/true", "my_trainer_that_is_here");
  RunningJob here({"-n", "2", "--", "my_trainer_that_is_here"});
  EXPECT_EQ(here.finish(), 127);
  EXPECT_EQ(here.err,
            "crossdevice-run: cannot run my_trainer_that_is_here: No such file or directory; there "
            "is one in this folder: ./my_trainer_that_is_here\n");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
  RunningJob arguments({"-n", "x", "--", "true"});
  EXPECT_EQ(arguments.finish(), 2);
}

TEST(CrossdeviceRunTest, LinesOfManyWorkersStayWhole) {
  constexpr int kWorkers = 8;
  constexpr std::size_t kLines = 2000;
  RunningJob job(
      shell(kWorkers,
            "i=0; while [ $i -lt 2000 ]; do echo line $i of $CROSSDEVICE_RANK; i=$((i+1)); "
            "done"));
  EXPECT_EQ(job.finish(), 0);
  std::size_t total = 0;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const std::vector<std::string> lines = lines_of(job.out, rank);
    ASSERT_EQ(lines.size(), kLines);
    total += lines.size();
    for (std::size_t i = 0; i < kLines; ++i) {
      ASSERT_EQ(lines[i], "line " + std::to_string(i) + " of " + std::to_string(rank));
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count(job.out.begin(), job.out.end(), '\n')), total);
}

TEST(CrossdeviceRunTest, PartialBinaryAndLongLines) {
  RunningJob job(shell(1, "printf 'a\\000\\377b\\r\\npartial'; printf 'x' >&2"));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(job.out, std::string("[0] a\0\377b\r\n[0] partial\n", 22));
  EXPECT_EQ(job.err, "[0] x\n");
  RunningJob large(shell(1, "head -c 1000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(large.finish(), 0);
  EXPECT_EQ(static_cast<std::size_t>(std::count(large.out.begin(), large.out.end(), 'x')),
            1'000'000U);
  EXPECT_EQ(sorted_lines(large.out).size(), (1'000'000 + 65'535) / 65'536U);
}

TEST(CrossdeviceRunTest, OutputOfAWorkerThatIsStoppedIsNotLost) {
  RunningJob job(shell(2,
                       "if [ $CROSSDEVICE_RANK = 0 ]; then exit 5; fi; "
                       "trap 'printf late; exit 0' TERM; while :; do sleep 0.05; done"));
  EXPECT_EQ(job.finish(), 5);
  EXPECT_EQ(job.out.empty() || job.out == "[1] late\n", true) << job.out;
}

TEST(CrossdeviceRunTest, SignalsGoToEveryWorker) {
  for (const auto& [number, name] :
       {std::pair{SIGUSR1, "USR1"}, std::pair{SIGUSR2, "USR2"}, std::pair{SIGHUP, "HUP"},
        std::pair{SIGINT, "INT"}, std::pair{SIGTERM, "TERM"}}) {
    RunningJob job(shell(3, std::string("trap 'echo got ") + name + "; exit 0' " + name +
                                "; echo ready; while :; do sleep 0.02; done"));
    ASSERT_TRUE(job.read_until("ready", 3));
    job.send(number);
    EXPECT_EQ(job.finish(), 0) << name;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(lines_of(job.out, rank), ElementsAre("ready", std::string("got ") + name));
    }
  }
}

TEST(CrossdeviceRunTest, ASignalThatEndsTheWorkersIsTheJobsStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    RunningJob job(shell(3, "echo ready; exec sleep 1000"));
    ASSERT_TRUE(job.read_until("ready", 3));
    job.send(number);
    EXPECT_EQ(job.finish(), 128 + number);
  }
}

TEST(CrossdeviceRunTest, AnIgnoredSignalStaysIgnored) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  RunningJob job(shell(1, "echo ready; sleep 0.2; echo alive"));
  ::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(job.read_until("ready"));
  job.send(SIGHUP);
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.out, EndsWith("alive\n"));
}

constexpr const char* kStubborn = "trap '' TERM INT; echo ready; while :; do sleep 0.05; done";

TEST(CrossdeviceRunTest, AWorkerThatIgnoresSigtermIsKilled) {
  RunningJob job(shell(2, kStubborn, {"--grace-seconds", "0.2"}));
  ASSERT_TRUE(job.read_until("ready", 2));
  job.send(SIGTERM);
  EXPECT_EQ(job.finish(), 137);
  RunningJob failing(shell(2, std::string("[ $CROSSDEVICE_RANK = 1 ] && exit 9; ") + kStubborn,
                           {"--grace-seconds", "0.2"}));
  EXPECT_EQ(failing.finish(), 9);
  RunningJob at_once(shell(2, kStubborn, {"--grace-seconds", "0"}));
  ASSERT_TRUE(at_once.read_until("ready", 2));
  at_once.send(SIGINT);
  EXPECT_EQ(at_once.finish(), 137);
}

TEST(CrossdeviceRunTest, AStoppedWorkerEndsWithTheOthers) {
  RunningJob job(shell(2, "[ $CROSSDEVICE_RANK = 1 ] && kill -STOP $$; sleep 0.1; exit 4"));
  EXPECT_EQ(job.finish(), 4);
}

TEST(CrossdeviceRunTest, WhatAWorkerLeavesBehindEnds) {
  // In the worker's group, and in a session of its own; each with a child.
  RunningJob job(shell(2, "(sleep 1000; true) & setsid sh -c 'sleep 1000; true' & echo started"));
  EXPECT_EQ(job.finish(), 0);  // which looks for processes that are left
  EXPECT_EQ(sorted_lines(job.out).size(), 2U);
}

TEST(CrossdeviceRunTest, NothingIsLeftWhenItIsKilled) {
  RunningJob job(shell(4,
                       "(trap '' TERM HUP; sleep 1000; true) & echo $CROSSDEVICE_SECRET_FILE; "
                       "trap '' TERM HUP INT; while :; do sleep 0.05; done"));
  ASSERT_TRUE(job.read_until("\n", 4));
  const std::string secret = lines_of(job.out, 0).at(0);
  EXPECT_TRUE(exists(secret));
  job.send(SIGKILL);
  job.wait_for_everybody();
  EXPECT_FALSE(exists(secret));
}

TEST(CrossdeviceRunTest, AReaderThatGoesEndsTheJob) {
  RunningJob job(shell(2, "yes"));
  ASSERT_TRUE(job.read_until("y"));
  job.close_output();
  EXPECT_EQ(job.wait(), 141);
}

TEST(CrossdeviceRunTest, AReaderThatDoesNotReadHoldsUpNoSignal) {
  RunningJob job(shell(2, "yes"));
  ASSERT_TRUE(job.read_until("[1] y"));
  ASSERT_TRUE(job.read_until("[0] y"));
  job.send(SIGTERM);
  while (!job.workers().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  job.send(SIGTERM);           // the output is all that it waits for now
  EXPECT_EQ(job.wait(), 143);  // without reading another byte
}

TEST(CrossdeviceRunTest, AReaderThatDoesNotReadIsWaitedForUntilTheGraceIsOver) {
  RunningJob job(shell(2, "yes", {"--grace-seconds", "0.1"}));
  ASSERT_TRUE(job.read_until("[1] y"));
  ASSERT_TRUE(job.read_until("[0] y"));
  job.send(SIGTERM);
  EXPECT_THAT(job.wait(), AnyOf(143, 137));  // 137: a worker has not ended within the grace
}

TEST(CrossdeviceRunTest, ManyWorkers) {
  for (const int workers : {1, 64, 256}) {
    RunningJob job(shell(workers, "echo $CROSSDEVICE_RANK"));
    EXPECT_EQ(job.finish(), 0);
    const std::vector<std::string> lines = sorted_lines(job.out);
    const std::set<std::string> different(lines.begin(), lines.end());
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(workers));
    EXPECT_EQ(different.size(), static_cast<std::size_t>(workers));
  }
  RunningJob failing(shell(64, "[ $CROSSDEVICE_RANK = 40 ] && exit 6; exec sleep 1000"));
  EXPECT_EQ(failing.finish(), 6);
}

}  // namespace
}  // namespace crossdevice::run
