// SPDX-License-Identifier: Apache-2.0
/// Where the time of training went: compute, communication, and communication that compute hid.
///
/// A step is timed on the wall clock, at three moments that all replicas share:
///
///     begin ------------ computed ------ reduced ------ end
///       inputs, forward,    rest of the     update of
///       back-propagation    communication   the weights
///
///   begin     the step starts
///   computed  the last replica has computed its last gradient
///   reduced   the last gradient has been reduced
///   end       the last replica has updated its weights
///
///   compute        (computed - begin) + (end - reduced)
///   exposed        (reduced - computed): every replica waits
///   hidden         time before `computed` in which the cross-device ops were reducing a pack, seen from inside them
///   communication  hidden + exposed
///
/// So the step takes compute + communication - hidden. Back-propagation and reductions that run at the same time share the cores: where
/// there are fewer cores than replicas, hidden communication makes compute longer by up to as much.
#pragma once

#include <chrono>
#include <span>

#include "train/communication_log.h"

namespace crossdevice::train {

struct StepMoments {
  Clock::time_point begin;
  Clock::time_point computed;
  Clock::time_point reduced;
  Clock::time_point end;
};

/// In seconds; of one step, or summed over many.
struct TimeSplit {
  double compute = 0;
  double communication = 0;
  double hidden = 0;

  [[nodiscard]] double total() const { return compute + communication - hidden; }
  TimeSplit& operator+=(const TimeSplit& other) {
    compute += other.compute;
    communication += other.communication;
    hidden += other.hidden;
    return *this;
  }
};

[[nodiscard]] TimeSplit split_step(const StepMoments& moments,
                                   std::span<const CommunicationLog::Interval> reductions);

}  // namespace crossdevice::train
