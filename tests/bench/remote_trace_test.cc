// SPDX-License-Identifier: Apache-2.0
// crossdevice-run --hosts --trace: what workers have written where this machine does not see it becomes part of the job's timeline.
#include "run/remote_trace.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "bench/fake_remote_shell.h"
#include "bench/running_job.h"
#include "run/fields.h"
#include "run/janitor.h"

namespace crossdevice::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A folder that is removed at the end.
class RemoteTraceTest : public ::testing::Test {
 protected:
  RemoteTraceTest() { fs::create_directory(folder_); }
  ~RemoteTraceTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// A program that stands in for ssh and runs `script`.
  [[nodiscard]] std::string shell(const std::string& script) const {
    write("shell", "#!/bin/sh\n" + script + "\n");
    EXPECT_EQ(::chmod(path("shell").c_str(), S_IRWXU), 0);
    return path("shell");
  }
  /// What fetch_trace_parts() says, of ranks 1 and 2 on a host "far".
  [[nodiscard]] std::string fetch(const std::string& remote_shell) const {
    const Janitor janitor(path("secret"));
    ::testing::internal::CaptureStderr();
    fetch_trace_parts(path("t.json"),
                      {{.name = "near", .first_rank = 0, .num_workers = 1, .is_local = true},
                       {.name = "far", .first_rank = 1, .num_workers = 2, .is_local = false}},
                      remote_shell, janitor);
    return ::testing::internal::GetCapturedStderr();
  }
  [[nodiscard]] std::string request(const std::vector<std::string>& ranks) const {
    std::string fields;
    append_field(fields, library_version_string());
    append_field(fields, path("t.json"));
    append_fields(fields, ranks);
    std::string bytes;
    append_field(bytes, fields);
    return bytes;
  }
  /// What the agent says to `input`, and how it ends.
  [[nodiscard]] std::pair<int, std::string> ask_agent(const std::string& input) const {
    write("input", input);
    RunningJob agent(
        {"-c", "exec \"$0\" --trace-agent < " + path("input"), CROSSDEVICE_RUN_PROGRAM}, "/bin/sh");
    const int code = agent.finish();
    return {code, agent.out + agent.err};
  }

 private:
  std::string folder_ =
      ::testing::TempDir() + "crossdevice_remote_trace_" + std::to_string(::getpid());
};

TEST_F(RemoteTraceTest, TheAgentSendsWhatIsWantedAndKeepsWhatHasNotArrived) {
  write("t.json.1.77.part", "of rank 1");
  write("t.json.2.78.part", "");
  write("t.json.3.79.part", "of rank 3");
  write("t.json.1.77.other", "another file");
  const std::string sent = "16:t.json.1.77.part9:of rank 116:t.json.2.78.part0:0:";
  EXPECT_EQ(ask_agent(request({"1", "2"})), std::pair(1, sent));
  EXPECT_TRUE(fs::exists(path("t.json.1.77.part")));
  EXPECT_EQ(ask_agent(request({"1", "2"}) + "k"), std::pair(0, sent));
  EXPECT_FALSE(fs::exists(path("t.json.1.77.part")));
  EXPECT_FALSE(fs::exists(path("t.json.2.78.part")));
  EXPECT_EQ(read("t.json.3.79.part"), "of rank 3");
  EXPECT_EQ(read("t.json.1.77.other"), "another file");
  EXPECT_EQ(ask_agent(request({"1", "2"}) + "k"), std::pair(0, std::string("0:")));
}

TEST_F(RemoteTraceTest, TheAgentRefusesWhatNamesNoTimeline) {
  for (const char* input : {"", "5:abc", "x:", "3:abc"}) {
    const auto [code, said] = ask_agent(input);
    EXPECT_EQ(code, 3) << input;
    EXPECT_THAT(said, HasSubstr("--trace-agent: standard input names no timeline")) << input;
  }
}

TEST_F(RemoteTraceTest, AnAgentOfAnotherVersionNamesBoth) {
  const auto [code, said] = ask_agent("7:1:91:2,");
  EXPECT_EQ(code, 3);
  EXPECT_THAT(said, HasSubstr("crossdevice-run " + std::string(library_version_string()) +
                              ", but the one that starts the job is 9"));
}

TEST_F(RemoteTraceTest, WhatIsHereAlreadyIsNotAskedFor) {
  write("t.json.1.77.part", "seen");
  write("t.json.2.78.part", "seen too");
  EXPECT_EQ(fetch(shell("exit 9")), "");  // as where hosts share the folder
  EXPECT_EQ(read("t.json.1.77.part"), "seen");
}

TEST_F(RemoteTraceTest, PiecesOfAnySizeMakeTheParts) {
  const std::string large(1'000'000, 'x');
  write("answer",
        fmt::format("16:t.json.1.77.part{}:{}16:t.json.2.78.part0:0:", large.size(), large));
  const std::string script = "head -c 20 " + path("answer") + "; sleep 0.1; tail -c +21 " +
                             path("answer") + "; cat > " + path("heard");
  EXPECT_EQ(fetch(shell(script)), "");
  EXPECT_EQ(read("t.json.1.77.part"), large);
  EXPECT_TRUE(fs::exists(path("t.json.2.78.part")));
  EXPECT_EQ(read("heard"), request({"1", "2"}) + "k");
}

TEST_F(RemoteTraceTest, WhatIsNoPartOfTheJobIsNotWritten) {
  const std::string outside = path("escaped.1.77.part");
  for (const std::string name : {"../t.json.1.77.part", "t.json.5.77.part", "t.json.1.77",
                                 "escaped.1.77.part", "/tmp/t.json.1.77.part"}) {
    const std::string said =
        fetch(shell(fmt::format("printf '%s' '{}:{}3:abc0:'", name.size(), name)));
    EXPECT_THAT(said, AllOf(HasSubstr("the timelines of far stay there"),
                            HasSubstr("what was not asked for: " + name)));
    EXPECT_FALSE(fs::exists(outside));
  }
  EXPECT_THAT(fetch(shell("echo nonsense")), HasSubstr("it sends no timeline"));
}

TEST_F(RemoteTraceTest, AHostThatEndsBeforeIsNamedAndLeavesNothingHalf) {
  const std::string said =
      fetch(shell("printf '16:t.json.1.77.part100:half'; echo 'cannot go on' >&2; exit 255"));
  EXPECT_THAT(said, AllOf(HasSubstr("the timelines of far stay there"),
                          HasSubstr("it ended before; it said: cannot go on\n")));
  EXPECT_FALSE(fs::exists(path("t.json.1.77.part")));
}

/// Two hosts, "a" and "b", which see another folder where the timeline lies than this machine and than each other: for so long as `command` runs, mount
/// namespaces of two sleepers. What is left in those folders then is printed.
std::string with_far_folders(const std::string& folder, const std::string& command) {
  return fmt::format(R"(
cd {0} && mkdir far || exit 98
for host in a b; do
  unshare --mount sh -c "mount -t tmpfs none {0}/far && touch {0}/ready_$host && exec sleep 300" &
  pids="$pids $!"
  ln -s /proc/$!/ns/mnt {0}/mounts_$host
done
while [ ! -e ready_a ] || [ ! -e ready_b ]; do sleep 0.01; done
{1}
code=$?
for host in a b; do nsenter --mount={0}/mounts_$host ls {0}/far; done
kill $pids
wait
exit $code)",
                     folder, command);
}

TEST_F(RemoteTraceTest, TheTimelineHasTheRanksOfHostsThatShareNoFolder) {
  if (std::system("unshare --mount mount -t tmpfs none /tmp >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "needs root, unshare(1) and mount namespaces";
  }
  const FakeRemoteShell remote("nsenter --mount=" + path("mounts_$host"));
  write(
      "worker",
      "f=$(printf %s \"$CROSSDEVICE_TRACE\" | sed \"s/%r/$CROSSDEVICE_RANK/;s/%p/$$/\")\n"
      "printf '[\\n{\"name\":\"bar %s\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":1,\"dur\":1},\\n' "
      "$CROSSDEVICE_RANK > \"$f\"\n");
  const std::string command =
      fmt::format("{} --hosts a:2,localhost:1,b:1 --remote-shell {} --trace {} -- sh {}",
                  CROSSDEVICE_RUN_PROGRAM, remote.path(), path("far/job.json"), path("worker"));
  RunningJob job({"-c", with_far_folders(path("."), command)}, "/bin/sh");
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out + job.err, "");  // what was fetched is not there any more
  std::ifstream file(path("far/job.json"));
  std::set<std::string> names;
  for (const nlohmann::json& event : nlohmann::json::parse(file)) {
    if (event.at("ph") == "X") names.insert(event.at("name"));
  }
  EXPECT_EQ(names, (std::set<std::string>{"bar 0", "bar 1", "bar 2", "bar 3"}));
}

}  // namespace
}  // namespace crossdevice::run
