// SPDX-License-Identifier: Apache-2.0
/// The arithmetic of time_split.h.
#include "train/time_split.h"

#include <algorithm>

namespace crossdevice::train {

namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

TimeSplit split_step(const StepMoments& moments,
                     std::span<const CommunicationLog::Interval> reductions) {
  TimeSplit split;
  for (const CommunicationLog::Interval& reduction : reductions) {
    const Clock::time_point begin = std::max(reduction.begin, moments.begin);
    const Clock::time_point end = std::min(reduction.end, moments.computed);
    if (begin < end) split.hidden += seconds(end - begin);
  }
  split.compute =
      seconds(moments.computed - moments.begin) + seconds(moments.end - moments.reduced);
  split.communication = split.hidden + seconds(moments.reduced - moments.computed);
  return split;
}

}  // namespace crossdevice::train
