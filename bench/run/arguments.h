// SPDX-License-Identifier: Apache-2.0
/// crossdevice-run's command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace crossdevice::run {

inline constexpr int kMaxWorkers = 256;
inline constexpr int kMaxNamespaces = 250;  ///< one /24 has addresses for them

/// Which of the workers' lines get their rank in front.
enum class RankPrefix : bool { ALL_OUTPUT, ERROR_OUTPUT };

/// What the end of a worker with anything but 0 means for the others.
enum class WhenOneFails : bool { STOP_THE_OTHERS, KEEP_GOING };

struct Arguments {
  int num_workers = 1;
  std::chrono::duration<double> grace{5};  ///< between SIGTERM and SIGKILL
  int num_namespaces = 0;                  ///< 0: none, the workers run where this program runs
  std::string rate;                        ///< as tc takes it, "1gbit"; empty: no limit
  RankPrefix rank_prefix = RankPrefix::ALL_OUTPUT;
  WhenOneFails when_one_fails = WhenOneFails::STOP_THE_OTHERS;
  std::vector<std::string> command;  ///< the program and its arguments
};

/// Nothing: --help or --version was asked for and printed.
///
/// Errors   programs::ArgumentError; UnimplementedError: --hosts.
[[nodiscard]] std::optional<Arguments> parse_arguments(int argc, const char* const* argv);

/// "200mbit" in bits per second.
///
/// Errors   programs::ArgumentError: not a whole number and one of kbit, mbit, gbit, or not from 1 kbit to 1000 gbit.
[[nodiscard]] double bits_per_second(const std::string& rate);

}  // namespace crossdevice::run
