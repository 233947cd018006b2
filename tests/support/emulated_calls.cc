// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_calls.h"

#include <utility>

namespace crossdevice::testing {

std::vector<EmulatedCall> EmulatedCalls::list() const {
  const auto lock = machine_.lock();
  return calls_;
}

std::vector<std::string> EmulatedCalls::names() const {
  const auto lock = machine_.lock();
  std::vector<std::string> names;
  names.reserve(calls_.size());
  for (const EmulatedCall& call : calls_) names.emplace_back(call.function);
  return names;
}

std::size_t EmulatedCalls::count(std::string_view function) const {
  const auto lock = machine_.lock();
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

std::map<std::string, std::size_t, std::less<>> EmulatedCalls::counts() const {
  const auto lock = machine_.lock();
  return counts_;
}

void EmulatedCalls::clear() {
  const auto lock = machine_.lock();
  calls_.clear();
  counts_.clear();
}

void EmulatedCalls::list_queries() {
  const auto lock = machine_.lock();
  lists_queries_ = true;
}

bool EmulatedCalls::await_count(std::string_view function, std::size_t count,
                                std::chrono::milliseconds limit) {
  auto lock = machine_.lock();
  return machine_.await_for(lock, limit, [&] {
    const auto found = counts_.find(function);
    return (found == counts_.end() ? 0 : found->second) >= count;
  });
}

void EmulatedCalls::inject(Fault fault) {
  const auto lock = machine_.lock();
  faults_.push_back(std::move(fault));
}

void EmulatedCalls::clear_faults() {
  const auto lock = machine_.lock();
  faults_.clear();
}

void EmulatedCalls::release_hangs() {
  const auto lock = machine_.lock();
  ++num_hang_releases_;
  machine_.notify();
}

EmulatedCalls::Outcome EmulatedCalls::begin(EmulatedMachine::Lock& lock, const EmulatedCall& call,
                                            bool is_query) {
  auto counter = counts_.find(call.function);
  if (counter == counts_.end()) counter = counts_.emplace(std::string(call.function), 0).first;
  ++counter->second;
  if (!is_query || lists_queries_) calls_.push_back(call);
  if (!is_query) machine_.notify();

  Outcome outcome;
  for (auto fault = faults_.begin(); fault != faults_.end();) {
    if (fault->function != call.function || (fault->device >= 0 && fault->device != call.device) ||
        fault->count == 0) {
      ++fault;
      continue;
    }
    if (fault->skip > 0) {
      --fault->skip;
      ++fault;
      continue;
    }
    const Fault happens = *fault;
    fault = --fault->count == 0 ? faults_.erase(fault) : fault + 1;
    switch (happens.kind) {
      case FaultKind::FAIL_CALL:
        outcome.status = happens.status;
        return outcome;
      case FaultKind::DELAY_CALL:
        (void)machine_.await_for(lock, happens.delay, [] { return false; });
        return outcome;
      case FaultKind::HANG_CALL: {
        const std::uint64_t releases = num_hang_releases_;
        (void)machine_.await_or_release(lock, [&] { return num_hang_releases_ != releases; });
        return outcome;
      }
      case FaultKind::DELAY_OPERATION:
      case FaultKind::FAIL_OPERATION:
      case FaultKind::HANG_OPERATION:
        outcome.operation = happens;
        return outcome;
    }
  }
  return outcome;
}

}  // namespace crossdevice::testing
