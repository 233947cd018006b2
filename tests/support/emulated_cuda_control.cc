// SPDX-License-Identifier: Apache-2.0
/// What a test tells emulated CUDA to do, and asks of it.
#include <cstddef>

#include "support/emulated_cuda.h"

namespace crossdevice::testing {

using detail::CudaStatus;

void EmulatedCuda::clear_violations() {
  machine_.clear_violations();
  const auto lock = machine_.lock();
  for (std::size_t device = 0; device < kept_.size(); ++device) {
    if (kept_[device] != CudaStatus::SUCCESS) ++num_recoveries_[device];
    kept_[device] = CudaStatus::SUCCESS;
  }
}

void EmulatedCuda::block_stream(detail::CudaStream stream) {
  auto lock = machine_.lock();
  if (EmulatedStream* const blocked = find_stream(lock, stream)) streams_.push_gate(lock, *blocked);
}

void EmulatedCuda::release_stream(detail::CudaStream stream) {
  auto lock = machine_.lock();
  if (EmulatedStream* const blocked = find_stream(lock, stream))
    streams_.open_gates(lock, *blocked);
}

void EmulatedCuda::release_everything() {
  auto lock = machine_.lock();
  machine_.release_everything(lock);
}

bool EmulatedCuda::synchronize(std::chrono::milliseconds limit) {
  auto lock = machine_.lock();
  return await_streams(lock, streams_.all_of(lock), limit);
}

bool EmulatedCuda::synchronize(detail::CudaStream handle, std::chrono::milliseconds limit) {
  auto lock = machine_.lock();
  EmulatedStream* const stream = find_stream(lock, handle);
  return stream != nullptr && await_streams(lock, {stream}, limit);
}

void EmulatedCuda::set_checks_order(bool checks) {
  const auto lock = machine_.lock();
  checks_order_ = checks;
}

void EmulatedCuda::set_peers(int device, int peer, bool can) {
  const auto lock = machine_.lock();
  peers_.at(static_cast<std::size_t>(device)).at(static_cast<std::size_t>(peer)) = can;
}

void EmulatedCuda::fail_device(int device, CudaStatus status) {
  auto lock = machine_.lock();
  fail_device(lock, device, status, "");
}

std::size_t EmulatedCuda::num_streams() {
  const auto lock = machine_.lock();
  return num_live_streams_;
}

std::size_t EmulatedCuda::num_events() {
  const auto lock = machine_.lock();
  return live_events_.size();
}

}  // namespace crossdevice::testing
