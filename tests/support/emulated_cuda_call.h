// SPDX-License-Identifier: Apache-2.0
/// Private to the emulation of CUDA: its events, and what every function of the table does first.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "support/emulated_cuda.h"

namespace crossdevice::testing {

struct EmulatedCuda::Event {
  int device = -1;
  bool has_timing = false;
  std::shared_ptr<Moment> moment;            ///< null: never recorded, or captured
  std::shared_ptr<EmulatedCapture> capture;  ///< whose record the last one is
  std::size_t slot = 0;
};

/// Holds the lock as long as the call lasts.
class EmulatedCuda::Call {
 public:
  Call(EmulatedCuda& cuda, std::string_view function)
      : cuda_(cuda), function_(function), lock(cuda.machine_.lock()) {}

  /// Notes the call. What it must return at once, if anything.
  std::optional<detail::CudaStatus> begin(int device, const void* stream = nullptr,
                                          std::size_t size_bytes = 0);
  /// The same for what depends on no device's health.
  std::optional<detail::CudaStatus> begin_query(int device, const void* handle = nullptr);
  /// The same on a stream, which is found then.
  std::optional<detail::CudaStatus> begin_on(detail::CudaStream handle, std::size_t size_bytes = 0);

 private:
  std::optional<detail::CudaStatus> note(int device, const void* stream, std::size_t size_bytes,
                                         bool is_query);

  UncountedAllocations uncounted_;
  EmulatedCuda& cuda_;
  const std::string_view function_;

 public:
  EmulatedMachine::Lock lock;
  EmulatedStream* stream = nullptr;
  std::optional<Fault> fault;
};

template <class Handle, class Object>
Handle to_handle(Object* object) {
  return reinterpret_cast<Handle>(object);
}

}  // namespace crossdevice::testing
