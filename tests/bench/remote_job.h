// SPDX-License-Identifier: Apache-2.0
/// What tests do with crossdevice-run --hosts, whatever the remote shell.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/awaited_file.h"
#include "bench/running_job.h"

namespace crossdevice::run {

class RemoteJobTest : public ::testing::Test {
 protected:
  [[nodiscard]] virtual std::string shell() const = 0;

  /// Options and the program that they are for.
  [[nodiscard]] std::vector<std::string> on(const std::string& hosts,
                                            const std::vector<std::string>& options,
                                            const std::vector<std::string>& program) const {
    std::vector<std::string> arguments{"--hosts", hosts, "--remote-shell", shell()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  }
  /// Workers that end by SIGTERM have time for it, however slow the machine is.
  [[nodiscard]] std::vector<std::string> script(const std::string& hosts, const std::string& text,
                                                const std::vector<std::string>& options = {
                                                    "--grace-seconds", "100"}) const {
    return on(hosts, options, {"sh", "-c", text});
  }

  void expect_signal_goes_to_every_worker(int number, const std::string& name) const {
    RunningJob job(script(
        "a:2,b", "trap 'echo got; exit 0' " + name + "; echo ready; while :; do sleep 0.02; done"));
    ASSERT_TRUE(job.read_until("ready", 3)) << job.err;
    job.send(number);
    EXPECT_EQ(job.finish(), 0) << name << job.err;
    EXPECT_THAT(sorted_lines(job.out), ::testing::ElementsAre("[0] got", "[0] ready", "[1] got",
                                                              "[1] ready", "[2] got", "[2] ready"));
  }
  void expect_nothing_is_left_when_the_launcher_is_killed() const {
    RunningJob job(script("a:2,b:2,localhost",
                          "(trap '' TERM HUP; sleep 1000; true) & echo $CROSSDEVICE_SECRET_FILE; "
                          "trap '' TERM HUP INT; while :; do sleep 0.05; done",
                          {"--grace-seconds", "0.1"}));
    ASSERT_TRUE(job.read_until("\n", 5)) << job.err;
    job.send(SIGKILL);
    job.wait_for_everybody();  // which adopts all of them
    for (const std::string& line : sorted_lines(job.out)) {
      EXPECT_FALSE(std::filesystem::exists(line.substr(4))) << line;
    }
  }
  /// As where the network is cut: no end is seen, nothing comes, once the process that `choose` gives is stopped.
  void expect_workers_end_unheard(const std::function<pid_t(const RunningJob&)>& choose) const {
    const AwaitedFile ended;
    RunningJob job(script(
        "a",
        "trap 'echo > " + ended.path() + "; exit 0' TERM; echo ready; while :; do sleep 0.02; done",
        {"--host-silence-seconds", "4"}));
    ASSERT_TRUE(job.read_until("ready")) << job.err;
    const pid_t stopped = choose(job);
    ::kill(stopped, SIGSTOP);
    EXPECT_TRUE(ended.await(std::chrono::seconds(60)));
    ::kill(stopped, SIGCONT);
    EXPECT_EQ(job.finish(), 128 + SIGHUP);
    EXPECT_THAT(job.err,
                ::testing::HasSubstr("nothing was heard for 4 s from the crossdevice-run"));
  }
};

}  // namespace crossdevice::run
