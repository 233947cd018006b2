// SPDX-License-Identifier: Apache-2.0
// crossdevice-run --hosts: workers behind a remote shell, how their jobs end, what nobody may see, and that nothing is left.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/awaited_file.h"
#include "bench/fake_remote_shell.h"
#include "bench/namespace_obstacle.h"
#include "bench/remote_job.h"
#include "bench/running_job.h"
#include "run/job_on_hosts.h"
#include "run/network_namespaces.h"
#include "run/remote_shell.h"

namespace crossdevice::run {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RemoteHostsTest : public RemoteJobTest {
 protected:
  [[nodiscard]] std::string shell() const override { return shell_.path(); }

  FakeRemoteShell shell_;
};

TEST_F(RemoteHostsTest, EveryWorkerKnowsWhoItIs) {
  RunningJob job(script("a:2,localhost:1,b:2",
                        "echo ${HERE-here} $CROSSDEVICE_RANK/$CROSSDEVICE_NUM_WORKERS "
                        "$CROSSDEVICE_LOCAL_RANK/$CROSSDEVICE_LOCAL_NUM_WORKERS "
                        "${CROSSDEVICE_CHIEF_ADDRESS%:*} $CROSSDEVICE_LAUNCHER"));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] a 0/5 0/2 a crossdevice", "[1] a 1/5 1/2 a crossdevice",
                          "[2] here 2/5 0/1 a crossdevice", "[3] b 3/5 0/2 a crossdevice",
                          "[4] b 4/5 1/2 a crossdevice"));
  EXPECT_EQ(job.err, "");
}

TEST_F(RemoteHostsTest, OtherHostsReachAFirstHostThatIsThisMachine) {
  RunningJob job(on("localhost:2,a:1", {}, {CROSSDEVICE_SUMMING_WORKER}));
  const int code = job.finish();
  if (code == 3 && job.err.find("no address") != std::string::npos) GTEST_SKIP() << job.err;
  EXPECT_EQ(code, 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] local 0 of 2: 0 wrong", "[1] local 1 of 2: 0 wrong",
                          "[2] local 0 of 1: 0 wrong"));
}

TEST_F(RemoteHostsTest, OnlyThisMachine) {
  RunningJob job({"--hosts", "localhost:1,127.0.0.1:2", "-x", "MINE=1", "--", "sh", "-c",
                  "echo $CROSSDEVICE_RANK ${CROSSDEVICE_CHIEF_ADDRESS%:*} $MINE"});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] 0 127.0.0.1 1", "[1] 1 127.0.0.1 1", "[2] 2 127.0.0.1 1"));
}

TEST_F(RemoteHostsTest, FewerWorkersThanSlotsFillInOrder) {
  RunningJob job(script("a:2,b:4,c:4", "echo $HERE $CROSSDEVICE_LOCAL_NUM_WORKERS", {"-n", "3"}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] a 2", "[1] a 2", "[2] b 1"));
}

TEST_F(RemoteHostsTest, AHostfileAndThePort) {
  const std::string file = shell_.path() + ".hosts";
  std::ofstream(file) << "# hosts\na slots=1  # one\n\nuser@b:1\n";
  RunningJob job({"--hostfile", file, "--port", "4711", "--remote-shell", shell_.path(), "--plain",
                  "--", "sh", "-c", "echo $HERE $CROSSDEVICE_CHIEF_ADDRESS; echo err >&2"});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("a a:4711", "user@b a:4711"));
  EXPECT_THAT(sorted_lines(job.err), ElementsAre("[0] err", "[1] err"));
  ::unlink(file.c_str());
}

TEST_F(RemoteHostsTest, ArgumentsVariablesAndTheDirectoryArriveByteForByte) {
  const std::string hostile = "a b'c\"d$HOME`id`\\ \n\t;&|<>(){}[]*?!#~%^ $(x) -- \xff\x80 end\n";
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string directory = shell_.path() + " it's $HOME";
  std::filesystem::create_directory(directory);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  ::setenv("CROSSDEVICE_TEST_VALUE", hostile.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  ::setenv("NOT_ASKED_FOR", "x", 1);                       // NOLINT(concurrency-mt-unsafe)
  ::setenv("ASKED_FOR", all.c_str(), 1);                   // NOLINT(concurrency-mt-unsafe)
  RunningJob job(on("a", {"--plain", "-x", "ASKED_FOR", "-x", "GIVEN=[1,2] = $y", "-x", "EMPTY="},
                    {"sh", "-c",
                     "printf '%s|' \"$@\" \"$CROSSDEVICE_TEST_VALUE\" \"$ASKED_FOR\" \"$GIVEN\" "
                     "\"${EMPTY-unset}\" \"${NOT_ASKED_FOR-unset}\" \"$PWD\"",
                     "name", hostile, "", all}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out, hostile + "||" + all + "|" + hostile + "|" + all + "|[1,2] = $y||unset|" +
                         directory + "|\n");
  std::filesystem::current_path(before);
  std::filesystem::remove(directory);
  ::unsetenv("CROSSDEVICE_TEST_VALUE");  // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("NOT_ASKED_FOR");           // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("ASKED_FOR");               // NOLINT(concurrency-mt-unsafe)
}

TEST_F(RemoteHostsTest, AJobLargerThanAPipe) {
  std::vector<std::string> program{"sh", "-c", "echo $#", "name"};
  program.resize(14, std::string(100'000, 'x'));
  RunningJob job(on("a,b", {}, program));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), ElementsAre("[0] 10", "[1] 10"));
}

TEST_F(RemoteHostsTest, NobodySeesTheSecret) {
  RunningJob job(script("a,b", "stat -c '%a %n' $CROSSDEVICE_SECRET_FILE; exec sleep 1000"));
  ASSERT_TRUE(job.read_until("\n", 2));
  const std::vector<std::string> lines = sorted_lines(job.out);
  std::vector<std::string> secrets;
  for (const std::string& line : lines) {
    EXPECT_EQ(line.substr(4, 4), "600 ");
    std::ifstream file(line.substr(8));
    std::string& secret = secrets.emplace_back();
    std::getline(file, secret);
  }
  ASSERT_EQ(secrets.at(0).size(), 64U);
  EXPECT_EQ(secrets.at(0), secrets.at(1));
  EXPECT_NE(lines.at(0).substr(8), lines.at(1).substr(8));
  int read = 0;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    for (const char* name : {"cmdline", "environ"}) {
      std::ifstream file(process.path() / name);
      std::ostringstream contents;
      contents
          << file.rdbuf();  // of a process that ends meanwhile: nothing, where an iterator would throw
      const std::string text = contents.str();
      EXPECT_EQ(text.find(secrets.at(0)), std::string::npos) << process.path() / name;
      read += text.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(read, 4);
  job.send(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM);
  for (const std::string& line : lines) EXPECT_FALSE(std::filesystem::exists(line.substr(8)));
}

TEST_F(RemoteHostsTest, TheFirstFailureEndsTheJobOnAllHosts) {
  for (const auto& [end, code] : {std::pair{"exit 7", 7}, {"kill -SEGV $$", 139}}) {
    for (const char* rank : {"0", "1", "3"}) {
      RunningJob job(script("localhost:1,a:2,b:1", std::string("[ $CROSSDEVICE_RANK = ") + rank +
                                                       " ] && " + end + "; exec sleep 1000"));
      EXPECT_EQ(job.finish(), code) << job.err;
      EXPECT_THAT(job.err, HasSubstr(std::string("crossdevice-run: rank ") + rank));
    }
  }
}

TEST_F(RemoteHostsTest, TheOthersGoOnWhereThatIsAskedFor) {
  const AwaitedFile others_have_ended;
  RunningJob job(
      script("a:2,b:2,c",
             "[ $CROSSDEVICE_RANK != 3 ] && exit 5; " + others_have_ended.awaited() + "; echo done",
             {"--keep-going"}));
  ASSERT_TRUE(job.read_error_until("host a ended with status 5; the others go on"));
  ASSERT_TRUE(job.read_error_until("host c ended with status 5; the others go on"));
  others_have_ended.appear();
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out, "[3] done\n");
}

TEST_F(RemoteHostsTest, AHostThatCannotBeReachedIsNamed) {
  RunningJob job(script("a,unknown.example,b", "exec sleep 1000"));
  EXPECT_EQ(job.finish(), 255);
  EXPECT_THAT(job.err, HasSubstr("cannot resolve unknown.example\n"));
  EXPECT_THAT(job.err, HasSubstr("the remote shell to host unknown.example ended with status 255"));
  RunningJob no_shell({"--hosts", "a", "--remote-shell", "/nonexistent/shell -p 1", "--", "true"});
  EXPECT_EQ(no_shell.finish(), 127);
  EXPECT_THAT(no_shell.err, HasSubstr("cannot run /nonexistent/shell"));
}

TEST_F(RemoteHostsTest, AConnectionThatIsLostEndsTheJob) {
  // The worker's parent is crossdevice-run on that host; its parent in turn stands for the connection.
  RunningJob job(script("a:2,b:2",
                        "if [ $CROSSDEVICE_RANK = 3 ]; then "
                        "read -r pid name state connection rest < /proc/$PPID/stat; "
                        "kill -KILL $connection; fi; exec sleep 1000"));
  EXPECT_EQ(job.finish(), 137);
  EXPECT_THAT(job.err, HasSubstr("host b was ended by signal 9 (SIGKILL); stopping the others"));
}

TEST_F(RemoteHostsTest, AProgramThatCannotRun) {
  RunningJob absent(on("a,b", {}, {"/nonexistent/program"}));
  EXPECT_EQ(absent.finish(), 127);
  EXPECT_THAT(absent.err, HasSubstr("cannot run /nonexistent/program: No such file or directory"));
}

TEST_F(RemoteHostsTest, SignalsGoToEveryWorker) {
  for (const auto& [number, name] :
       {std::pair{SIGUSR1, "USR1"}, {SIGHUP, "HUP"}, {SIGINT, "INT"}, {SIGTERM, "TERM"}}) {
    expect_signal_goes_to_every_worker(number, name);
  }
}

TEST_F(RemoteHostsTest, AWorkerThatIgnoresSigtermIsKilled) {
  RunningJob job(script("a,b", "trap '' TERM INT; echo ready; while :; do sleep 0.05; done",
                        {"--grace-seconds", "0.2"}));
  ASSERT_TRUE(job.read_until("ready", 2));
  job.send(SIGTERM);
  EXPECT_EQ(job.finish(), 137);
}

TEST_F(RemoteHostsTest, AHostThatNeverAnswersHoldsUpNoSignal) {
  const auto end_by = [&](int number) {
    RunningJob job(script("a,silent", "echo ready; exec sleep 1000", {"--grace-seconds", "0.2"}));
    EXPECT_TRUE(job.read_until("ready"));
    job.send(number);
    return job.finish();
  };
  EXPECT_EQ(end_by(SIGHUP), 128 + SIGHUP);  // the grace begins when the other's worker has ended
  EXPECT_THAT(end_by(SIGTERM), AnyOf(128 + SIGTERM, 137));  // 137: that one was too slow for it
}

TEST_F(RemoteHostsTest, NothingIsLeftWhenTheLauncherIsKilled) {
  expect_nothing_is_left_when_the_launcher_is_killed();
}

TEST_F(RemoteHostsTest, WorkersEndWhereNothingIsHeardOfTheLauncher) {
  expect_workers_end_unheard([](const RunningJob& job) { return job.pid(); });
}

/// And the launcher, too, which is heard again only after the host could look.
TEST_F(RemoteHostsTest, AHostThatWasStoppedGoesOn) {
  RunningJob job(script("a", "echo $PPID; sleep 14; echo done", {"--host-silence-seconds", "4"}));
  ASSERT_TRUE(job.read_until("\n")) << job.err;
  const pid_t host = std::stoi(job.out.substr(4));
  job.send(SIGSTOP);
  ::kill(host, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));
  ::kill(host, SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  job.send(SIGCONT);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("done"));
}

/// Its worker has ended, and more waits than pipes and the launcher hold.
TEST_F(RemoteHostsTest, AHostWhoseLastOutputNobodyReadsIsNotAlone) {
  constexpr int kBytes = 1'700'000;
  const AwaitedFile ended;
  RunningJob job(script(
      "a",
      fmt::format("head -c {} /dev/zero | tr '\\0' x; echo > {}; exit 7", kBytes, ended.path()),
      {"--host-silence-seconds", "2"}));
  EXPECT_TRUE(ended.await(std::chrono::seconds(60)));
  std::this_thread::sleep_for(std::chrono::seconds(6));
  EXPECT_EQ(job.finish(), 7) << job.err;
  EXPECT_EQ(std::count(job.out.begin(), job.out.end(), 'x'), kBytes);
}

/// One pipe for both outputs, as with "2>&1 | less": what one fills the other one finds full.
TEST_F(RemoteHostsTest, ALauncherWhoseOutputNobodyReadsIsHeardAllTheSame) {
  std::vector<std::string> command{"-c", "exec \"$0\" \"$@\" 2>&1", CROSSDEVICE_RUN_PROGRAM};
  const std::vector<std::string> launched =
      script("a", "yes >&2 & yes | head -c 200000; kill $!; wait; sleep 10; echo done",
             {"--host-silence-seconds", "2"});
  command.insert(command.end(), launched.begin(), launched.end());
  RunningJob job(command, "/bin/sh");
  job.shrink_output();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // both have something to write
  ASSERT_TRUE(job.read_until("y"));
  std::this_thread::sleep_for(std::chrono::seconds(8));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_THAT(job.out, HasSubstr("done"));
  EXPECT_THAT(job.out, Not(HasSubstr("nothing was heard")));
}

TEST_F(RemoteHostsTest, LongLinesAreCutOnce) {
  RunningJob job(script("a", "head -c 200000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(job.finish(), 0);
  EXPECT_EQ(sorted_lines(job.out).size(), (200'000 + 65'535) / 65'536U);
  EXPECT_EQ(std::count(job.out.begin(), job.out.end(), 'x'), 200'000);
}

TEST_F(RemoteHostsTest, AReaderThatGoesEndsTheJob) {
  RunningJob job(script("a,b", "yes", {"--grace-seconds", "0.5"}));
  ASSERT_TRUE(job.read_until("y"));
  job.close_output();
  EXPECT_EQ(job.wait(), 141);
}

TEST(RemoteHostsWithoutAJobTest, TheHostAgentRefusesWhatIsNoJob) {
  for (const char* input : {"", "5:abc", "x:", "99999999999:", "3:abc", "7:1:91:2,"}) {
    const std::string command = std::string("printf '") + input + "' | \"$0\" --host-agent";
    RunningJob job({"-c", command, CROSSDEVICE_RUN_PROGRAM}, "/bin/sh");
    EXPECT_EQ(job.finish(), 3) << input;
    EXPECT_THAT(job.err, StartsWith("crossdevice-run: ")) << input;
  }
}

/// Two hosts with a network of their own: "10.200.0.1" and "10.200.0.2".
class RemoteNamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = namespace_obstacle();
    if (!why.empty()) GTEST_SKIP() << why;
    namespaces_.emplace(2, "");
    for (int i = 0; i < 2; ++i) {
      const std::string link = fmt::format("{}remote_namespace_{}_{}", ::testing::TempDir(),
                                           ::getpid(), NetworkNamespaces::address(i));
      std::filesystem::create_symlink(
          fmt::format("/proc/{}/fd/{}", ::getpid(), namespaces_->descriptor(i)), link);
      links_.push_back(link);
    }
    shell_.emplace(
        fmt::format("nsenter --net={}remote_namespace_{}_$host", ::testing::TempDir(), ::getpid()));
  }
  void TearDown() override {
    for (const std::string& link : links_) ::unlink(link.c_str());
  }
  [[nodiscard]] std::vector<std::string> on(const std::string& hosts,
                                            const std::string& program) const {
    return {"--hosts", hosts, "--remote-shell", shell_->path(), "--", program};
  }

  std::optional<NetworkNamespaces> namespaces_;
  std::optional<FakeRemoteShell> shell_;
  std::vector<std::string> links_;
};

TEST_F(RemoteNamespacesTest, WorkersSumAcrossHosts) {
  RunningJob job(on("10.200.0.1:2,10.200.0.2:2", CROSSDEVICE_SUMMING_WORKER));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out),
              ElementsAre("[0] local 0 of 2: 0 wrong", "[1] local 1 of 2: 0 wrong",
                          "[2] local 0 of 2: 0 wrong", "[3] local 1 of 2: 0 wrong"));
}

TEST_F(RemoteNamespacesTest, WorkersMeetOnUnequalHosts) {
  RunningJob job(on("10.200.0.2:1,10.200.0.1:3", CROSSDEVICE_MEETING_WORKER));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_THAT(sorted_lines(job.out), Contains("[3] rank 3 of 4, local 2 of 3: 0,1,2,3,"));
}

TEST(RemoteShellTest, TheCommandIsOneWordForTheShellThere) {
  EXPECT_EQ(quoted("it's $x"), R"('it'\''s $x')");
  EXPECT_THAT(remote_command(" ssh  -p 22 ", "a", "/x y", "--host-agent"),
              ElementsAre("ssh", "-p", "22", "a",
                          "test -x '/x y' && exec '/x y' --host-agent; exec crossdevice-run "
                          "--host-agent"));
}

TEST(ShareOutTest, HostsNamedTwiceAreOne) {
  const std::vector<HostShare> shares =
      share_out(parse_hosts("a:2,localhost,b,a:1,127.0.0.1:2,::1"), 7);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].num_workers, 3);
  EXPECT_FALSE(shares[0].is_local);
  EXPECT_TRUE(shares[1].is_local);
  EXPECT_EQ(shares[1].first_rank, 3);
  EXPECT_EQ(shares[1].num_workers, 4);
}

}  // namespace
}  // namespace crossdevice::run
