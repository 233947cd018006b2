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

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/environment.h"

namespace crossdevice::testing {
namespace {

constexpr const char* kWorkVariable = "TEST_WORK";

pid_t start_worker(const std::vector<std::string>& own_variables) {
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
  pid_t process = 0;
  EXPECT_EQ(::posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(),
                          environment.data()),
            0);
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
    processes.push_back(start_worker(variables));
  }
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
