// SPDX-License-Identifier: Apache-2.0
/// Times several contenders in turns, so that what disturbs the machine for a while disturbs all of them alike.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collective/statistics.h"
#include "collective/team.h"

namespace crossdevice::bench {

struct Contender {
  std::function<void()> prepare;  ///< before each sample, not timed
  std::function<void()> run;      ///< timed
  std::size_t calls = 1;          ///< that one run makes: a sample is its time divided by them
};

struct InterleaveOptions {
  std::size_t iterations = 20;  ///< timed calls of each contender; rounded up to whole rounds
  std::size_t warmup = 5;       ///< calls of each before, not timed
  std::size_t rounds = 5;       ///< A B C A B C ...: how often each has its turn
};

/// One summary per contender, in order. The team lines up before each sample, and the slowest worker's time is what counts.
///
/// Ranks    collective: equal numbers of contenders and calls, and equal options.
[[nodiscard]] std::vector<TimeStatistics> time_interleaved(std::span<const Contender> contenders,
                                                           const InterleaveOptions& options,
                                                           Team& team);

}  // namespace crossdevice::bench
