// SPDX-License-Identifier: Apache-2.0
#include "support/worker_processes.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/environment.h"

namespace crossdevice::testing {
namespace {

constexpr const char* kWorkVariable = "TEST_WORK";
constexpr const char* kPipeVariable = "TEST_PIPE";

/// Ends when none of the workers that have got its other end has it open any more.
class CommonPipe {
 public:
  CommonPipe() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~CommonPipe() { ::close(ends_[0]); }
  CommonPipe(const CommonPipe&) = delete;
  CommonPipe& operator=(const CommonPipe&) = delete;

  /// Which ends a worker is to get.
  [[nodiscard]] std::vector<int> ends(bool is_awaited) const {
    return is_awaited ? std::vector<int>{ends_[0], ends_[1]} : std::vector<int>{ends_[0]};
  }
  /// All workers have been started.
  void close_writer() const { ::close(ends_[1]); }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// `inherited`: descriptors that it gets.
pid_t start_worker(const std::vector<std::string>& own_variables,
                   const std::vector<int>& inherited) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), own_variables.begin(), own_variables.end());
  std::vector<char*> environment;
  environment.reserve(variables.size() + 1);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::array<char*, 2> arguments = {program.data(), nullptr};
  posix_spawn_file_actions_t actions;
  EXPECT_EQ(::posix_spawn_file_actions_init(&actions), 0);
  for (const int each : inherited) {
    EXPECT_EQ(::posix_spawn_file_actions_adddup2(&actions, each, each), 0);
  }
  pid_t process = 0;
  EXPECT_EQ(::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments.data(),
                          environment.data()),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  return process;
}

int number_of(Machines machines, int num_workers) {
  switch (machines) {
    case Machines::ONE:
      return 1;
    case Machines::TWO:
      return 2;
    case Machines::THREE:
      return 3;
    case Machines::ONE_EACH:
      break;
  }
  return num_workers;
}

int result_of(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

int worker_main(int argc, char** argv, const Works& works,
                const std::function<JoinOptions(const std::string& work)>& options) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* name = std::getenv(kWorkVariable)) {
    try {
      const WorkerTask& work = works.at(name);
      const std::shared_ptr<Cluster> cluster =
          work.needs_cluster() ? Cluster::join(options(name)) : nullptr;
      const int status = work(cluster.get());
      return status == 0 && ::testing::UnitTest::GetInstance()->Failed() ? 99 : status;
    } catch (const std::exception& error) {
      std::cerr << name << ": " << error.what() << '\n';
      return 100;
    }
  }
  return RUN_ALL_TESTS();
}

void await_the_others() {
  std::istringstream numbers(std::getenv(kPipeVariable));
  int reader = -1;
  int writer = -1;
  numbers >> reader;
  if (numbers >> writer) ::close(writer);
  char nothing = 0;
  while (::read(reader, &nothing, 1) < 0 && errno == EINTR) {
  }
}

std::string to_string(Machines machines) {
  switch (machines) {
    case Machines::ONE:
      return "OnOneMachine";
    case Machines::TWO:
      return "OnTwoMachines";
    case Machines::THREE:
      return "OnThreeMachines";
    case Machines::ONE_EACH:
      break;
  }
  return "OnOneEach";
}

std::vector<int> run_workers(const std::string& work, int num_workers, int stopped,
                             Machines machines) {
  const detail::ReservedPort port;
  const CommonPipe pipe;
  std::vector<pid_t> processes;
  processes.reserve(static_cast<std::size_t>(num_workers));
  for (int rank = 0; rank < num_workers; ++rank) {
    std::vector<std::string> variables = {
        std::string(kRankVariable) + "=" + std::to_string(rank),
        std::string(kNumWorkersVariable) + "=" + std::to_string(num_workers),
        std::string(kChiefAddressVariable) + "=" + port.address(),
        std::string(kWorkVariable) + "=" + work};
    if (machines != Machines::ONE) {
      variables.push_back(std::string(kHostIdVariable) + "=machine " +
                          std::to_string(rank * number_of(machines, num_workers) / num_workers));
    }
    const std::vector<int> ends = pipe.ends(/*is_awaited=*/rank != stopped);
    std::string& text = variables.emplace_back(std::string(kPipeVariable) + "=");
    for (const int end : ends) text += std::to_string(end) + " ";
    processes.push_back(start_worker(variables, ends));
  }
  pipe.close_writer();
  std::vector<int> results(processes.size());
  for (int rank = 0; rank < num_workers; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank != stopped) results[index] = result_of(processes[index]);
  }
  if (stopped >= 0) {
    const auto index = static_cast<std::size_t>(stopped);
    ::kill(processes[index], SIGKILL);
    results[index] = result_of(processes[index]);
  }
  return results;
}

}  // namespace crossdevice::testing
