// SPDX-License-Identifier: Apache-2.0
/// Starts one worker.
#pragma once

#include <csignal>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include "run/descriptor.h"
#include "run/janitor.h"

namespace crossdevice::run {

/// What a worker finds when it begins, other than what it inherits.
struct WorkerSetting {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< all of it, "NAME=value"
  int network_namespace = -1;            ///< a descriptor; -1: that of this process
  std::set<int> cores;                   ///< that it may run on; empty: those of this process
  sigset_t signal_mask{};                ///< as crossdevice-run found it
  rlimit max_open_files{};               ///< as crossdevice-run found it
  bool ignores_sigpipe = false;          ///< as crossdevice-run found it
  bool has_input = false;                ///< its standard input is a pipe, not empty
};

/// A worker that runs, and our ends of its streams, which do not block.
struct WorkerProcess {
  pid_t pid = -1;
  Descriptor in{};  ///< open where it has input
  Descriptor out;
  Descriptor err;
};

/// The program cannot be run; exit_code() is what shells give for that.
class CannotExecute : public std::runtime_error {
 public:
  CannotExecute(const std::string& program, int error);
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Starts the program in a process group of its own, with empty standard input (unless it has input) and no other descriptor of ours. When it dies with us: the kernel
/// kills it if this thread ends (PR_SET_PDEATHSIG), and the janitor whatever it has started.
///
/// Errors   CannotExecute; std::runtime_error: no process or no pipe can be made.
/// Threads  call it on the main thread only.
[[nodiscard]] WorkerProcess start_worker(const WorkerSetting& setting, const Janitor& janitor);

}  // namespace crossdevice::run
