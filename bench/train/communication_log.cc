// SPDX-License-Identifier: Apache-2.0
/// Counts nested scopes and keeps the outer one.
#include "train/communication_log.h"

#include <utility>

namespace crossdevice::train {

CommunicationLog::Scope::Scope(CommunicationLog& log) : log_(log), begin_(Clock::now()) {
  const std::lock_guard lock(log_.mutex_);
  ++log_.depth_;
}

CommunicationLog::Scope::~Scope() {
  const Clock::time_point end = Clock::now();
  const std::lock_guard lock(log_.mutex_);
  if (--log_.depth_ == 0) log_.intervals_.push_back({begin_, end});
}

std::vector<CommunicationLog::Interval> CommunicationLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(intervals_, {});
}

}  // namespace crossdevice::train
