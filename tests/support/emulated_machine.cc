// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_machine.h"

#include <cstdio>
#include <utility>

namespace crossdevice::testing {
namespace {
thread_local bool is_in_host_function = false;
}

void EmulatedMachine::release_everything(Lock& /*lock*/) {
  ++num_releases_;
  notify();
}

void EmulatedMachine::stop(Lock& /*lock*/) {
  is_stopping_ = true;
  notify();
}

void EmulatedMachine::report(Lock& /*lock*/, std::string violation) {
  (void)std::fprintf(stderr, "emulated GPUs: %s\n", violation.c_str());
  violations_.push_back(std::move(violation));
  notify();
}

std::vector<std::string> EmulatedMachine::violations() {
  const Lock held = lock();
  return violations_;
}

void EmulatedMachine::clear_violations() {
  const Lock held = lock();
  violations_.clear();
}

HostFunctionScope::HostFunctionScope() { is_in_host_function = true; }
HostFunctionScope::~HostFunctionScope() { is_in_host_function = false; }
bool HostFunctionScope::is_inside() { return is_in_host_function; }

}  // namespace crossdevice::testing
