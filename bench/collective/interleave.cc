// SPDX-License-Identifier: Apache-2.0
/// The timing loop.
#include "collective/interleave.h"

#include <algorithm>
#include <chrono>

namespace crossdevice::bench {

namespace {

double time_one_call_us(const Contender& contender) {
  using Clock = std::chrono::steady_clock;
  contender.prepare();
  const Clock::time_point begin = Clock::now();
  contender.run();
  const Clock::time_point end = Clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

}  // namespace

std::vector<TimeStatistics> time_interleaved(std::span<const Contender> contenders,
                                             const InterleaveOptions& options) {
  const std::size_t rounds = std::max<std::size_t>(1, options.rounds);
  const std::size_t calls_per_round =
      std::max<std::size_t>(1, (options.iterations + rounds - 1) / rounds);
  std::vector<std::vector<double>> samples_us(contenders.size());
  for (const Contender& contender : contenders) {
    for (std::size_t i = 0; i < options.warmup; ++i) (void)time_one_call_us(contender);
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      for (std::size_t i = 0; i < calls_per_round; ++i) {
        samples_us[c].push_back(time_one_call_us(contenders[c]));
      }
    }
  }
  std::vector<TimeStatistics> summaries;
  for (const std::vector<double>& samples : samples_us) summaries.push_back(summarise(samples));
  return summaries;
}

}  // namespace crossdevice::bench
