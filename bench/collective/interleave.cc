// SPDX-License-Identifier: Apache-2.0
/// The timing loop.
#include "collective/interleave.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace crossdevice::bench {

namespace {

double sample_us(const Contender& contender, Team& team) {
  using Clock = std::chrono::steady_clock;
  contender.prepare();
  team.line_up();
  const Clock::time_point begin = Clock::now();
  contender.run();
  const Clock::time_point end = Clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count() /
         static_cast<double>(contender.calls);
}

}  // namespace

std::vector<TimeStatistics> time_interleaved(std::span<const Contender> contenders,
                                             const InterleaveOptions& options, Team& team) {
  const std::size_t rounds = std::max<std::size_t>(1, options.rounds);
  const std::size_t calls_per_round =
      std::max<std::size_t>(1, (options.iterations + rounds - 1) / rounds);
  std::vector<std::vector<double>> samples_us(contenders.size());
  for (const Contender& contender : contenders) {
    for (std::size_t i = 0; i < options.warmup; ++i) (void)sample_us(contender, team);
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      for (std::size_t i = 0; i < calls_per_round; ++i) {
        samples_us[c].push_back(sample_us(contenders[c], team));
      }
    }
  }
  std::vector<TimeStatistics> summaries;
  summaries.reserve(samples_us.size());
  for (std::vector<double>& samples : samples_us) {
    summaries.push_back(summarise(team.slowest(std::move(samples))));
  }
  return summaries;
}

}  // namespace crossdevice::bench
