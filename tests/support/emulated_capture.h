// SPDX-License-Identifier: Apache-2.0
/// Captured work: what streams were asked to do, kept to be launched as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "crossdevice/device/cuda_api.h"

#include "support/emulated_machine.h"
#include "support/emulated_memory.h"

namespace crossdevice::testing {

struct EmulatedStream;

using CaptureMode = detail::CudaCaptureMode;

/// While it captures, then as the graph that came of it. Guarded by the machine's lock.
struct EmulatedCapture {
  enum class StepKind : std::uint8_t { RUN, RECORD, WAIT };
  struct Step {
    StepKind kind = StepKind::RUN;
    std::size_t branch = 0;
    std::size_t slot = 0;  ///< RECORD, WAIT: which moment of the graph
    /// RUN: the operation, anew for each launch.
    std::function<std::function<void()>(EmulatedMachine::Lock&, EmulatedStream& queue)> make;
  };

  CaptureMode mode = CaptureMode::GLOBAL;
  std::thread::id thread;
  detail::CudaStatus error = detail::CudaStatus::SUCCESS;  ///< what made it invalid
  std::vector<EmulatedStream*> branches;                   ///< the origin first
  std::vector<EmulatedStream*>
      queues;  ///< of the graph; the origin's is the stream it is launched on
  std::vector<Step> steps;
  std::size_t num_slots = 0;
  std::vector<std::shared_ptr<Allocation>> allocations;  ///< taken while capturing, the graph's
  /// Called when the graph is destroyed, or not made.
  std::vector<std::function<void(EmulatedMachine::Lock&)>> at_end;

  [[nodiscard]] bool is_valid() const { return error == detail::CudaStatus::SUCCESS; }
  [[nodiscard]] std::size_t branch_of(const EmulatedStream& stream) const;
  /// Whether every operation comes before the end of the origin.
  [[nodiscard]] bool is_joined() const;
};

/// A graph's handle: cudaGraphExec_t and cudaGraph_t in one.
using EmulatedGraph = EmulatedCapture*;

}  // namespace crossdevice::testing
