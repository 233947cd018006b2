// SPDX-License-Identifier: Apache-2.0
/// crossdevice-run's command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "run/host_list.h"
#include "run/remote_shell.h"

namespace crossdevice::run {

inline constexpr int kMaxWorkers = kMaxSlots;  ///< on one machine
inline constexpr int kMaxNamespaces = 250;     ///< one /24 has addresses for them

/// Which of the workers' lines get their rank in front.
enum class RankPrefix : bool { ALL_OUTPUT, ERROR_OUTPUT };

/// What the end of a worker with anything but 0 means for the others.
enum class WhenOneFails : bool { STOP_THE_OTHERS, KEEP_GOING };

/// Which cores a worker may run on.
enum class Binding : bool { NONE, OWN_CORES };

struct Arguments {
  int num_workers = 1;
  std::chrono::duration<double> grace{5};     ///< between SIGTERM and SIGKILL
  std::chrono::duration<double> silence{60};  ///< after which another host's workers end; 0: never
  int num_namespaces = 0;                     ///< 0: none, the workers run where this program runs
  std::string rate;                           ///< as tc takes it, "1gbit"; empty: no limit
  RankPrefix rank_prefix = RankPrefix::ALL_OUTPUT;
  WhenOneFails when_one_fails = WhenOneFails::STOP_THE_OTHERS;
  Binding binding = Binding::NONE;
  std::vector<Host> hosts;                         ///< none: all workers on this machine
  std::string remote_shell = kDefaultRemoteShell;  ///< its words, separated by blanks
  int port = 0;                                    ///< where rank 0 listens; 0: one that is free
  std::vector<std::string> exported;               ///< NAME or NAME=VALUE, for every worker
  std::string trace;                               ///< the job's timeline; empty: as run_job() says
  std::vector<std::string> traces_to_merge;        ///< the result and the parts; else empty
  std::vector<std::string> command;                ///< the program and its arguments
};

/// Nothing: --help or --version was asked for and printed.
///
/// Errors   programs::ArgumentError.
[[nodiscard]] std::optional<Arguments> parse_arguments(int argc, const char* const* argv);

/// "200mbit" in bits per second.
///
/// Errors   programs::ArgumentError: not a whole number and one of kbit, mbit, gbit, or not from 1 kbit to 1000 gbit.
[[nodiscard]] double bits_per_second(const std::string& rate);

}  // namespace crossdevice::run
