// SPDX-License-Identifier: Apache-2.0
/// Stream capture and graphs of emulated CUDA.
#include "support/emulated_capture.h"

#include <algorithm>
#include <utility>

#include "support/emulated_cuda.h"
#include "support/emulated_cuda_call.h"

namespace crossdevice::testing {
namespace {

using detail::CudaStatus;

// As of its first question to an emulation: cudaThreadExchangeStreamCaptureMode is for good.
thread_local CaptureMode mode_of_thread = CaptureMode::GLOBAL;

}  // namespace

std::size_t EmulatedCapture::branch_of(const EmulatedStream& stream) const {
  return static_cast<std::size_t>(std::find(branches.begin(), branches.end(), &stream) -
                                  branches.begin());
}

bool EmulatedCapture::is_joined() const {
  // From the end of the origin backwards: along its branch, and from each wait to what it waits for.
  std::vector<bool> is_reached(steps.size(), false);
  std::vector<std::size_t> ends{0};  // steps of a branch before this index
  std::vector<std::size_t> branches_of_ends{0};
  ends[0] = steps.size();
  while (!ends.empty()) {
    const std::size_t end = ends.back();
    const std::size_t branch = branches_of_ends.back();
    ends.pop_back();
    branches_of_ends.pop_back();
    for (std::size_t index = end; index-- > 0;) {
      const Step& step = steps[index];
      if (step.branch != branch) continue;
      if (is_reached[index]) break;
      is_reached[index] = true;
      if (step.kind != StepKind::WAIT) continue;
      for (std::size_t record = 0; record < index; ++record) {
        if (steps[record].kind != StepKind::RECORD || steps[record].slot != step.slot) continue;
        ends.push_back(record + 1);
        branches_of_ends.push_back(steps[record].branch);
      }
    }
  }
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (steps[index].kind == StepKind::RUN && !is_reached[index]) return false;
  }
  return true;
}

CudaStatus EmulatedCuda::invalidate(EmulatedMachine::Lock& /*lock*/, EmulatedCapture& capture,
                                    CudaStatus status) {
  if (capture.is_valid()) capture.error = status;
  return status;
}

std::optional<CudaStatus> EmulatedCuda::refuse_while_capturing(EmulatedMachine::Lock& lock) {
  bool is_refused = false;
  if (mode_of_thread == CaptureMode::RELAXED) return std::nullopt;
  for (const auto& capture : captures_) {
    if (!capture->is_valid()) continue;
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool concerns_all =
        capture->mode == CaptureMode::GLOBAL && mode_of_thread == CaptureMode::GLOBAL;
    if (capture->mode == CaptureMode::RELAXED || (!is_own && !concerns_all)) continue;
    (void)invalidate(lock, *capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
    is_refused = true;
  }
  if (!is_refused) return std::nullopt;
  return CudaStatus::STREAM_CAPTURE_UNSUPPORTED;
}

CudaStatus EmulatedCuda::exchange_capture_mode(CaptureMode* mode) {
  Call call(*this, "cuda.exchange_capture_mode");
  if (const auto refused = call.begin_query(current_device())) return *refused;
  std::swap(*mode, mode_of_thread);
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::stream_get_capture(detail::CudaStream stream,
                                            detail::CudaCaptureStatus* status) {
  Call call(*this, "cuda.stream_get_capture");
  const EmulatedStream* const found = find_stream(call.lock, stream);
  if (const auto refused = call.begin_query(found == nullptr ? -1 : found->device, stream)) {
    return *refused;
  }
  if (found == nullptr) return kInvalidResourceHandle;
  *status = detail::CudaCaptureStatus::NONE;
  if (found->capture != nullptr) {
    *status = found->capture->is_valid() ? detail::CudaCaptureStatus::ACTIVE
                                         : detail::CudaCaptureStatus::INVALIDATED;
  }
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::begin_capture(detail::CudaStream stream, CaptureMode mode) {
  Call call(*this, "cuda.begin_capture");
  if (const auto refused = call.begin_on(stream)) return *refused;
  if (call.stream->is_default) return CudaStatus::STREAM_CAPTURE_UNSUPPORTED;
  if (call.stream->capture != nullptr) return CudaStatus::INVALID_VALUE;
  auto capture = std::make_shared<EmulatedCapture>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->branches.push_back(call.stream);
  call.stream->capture = capture;
  captures_.push_back(std::move(capture));
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::end_capture(detail::CudaStream stream, EmulatedGraph* graph) {
  *graph = nullptr;
  Call call(*this, "cuda.end_capture");
  if (const auto refused = call.begin_on(stream)) return *refused;
  const std::shared_ptr<EmulatedCapture> capture = call.stream->capture;
  if (capture == nullptr) return CudaStatus::INVALID_VALUE;
  if (capture->branches.front() != call.stream) {
    return invalidate(call.lock, *capture, CudaStatus::STREAM_CAPTURE_UNMATCHED);
  }
  if (capture->mode != CaptureMode::RELAXED && capture->thread != std::this_thread::get_id()) {
    return invalidate(call.lock, *capture, CudaStatus::STREAM_CAPTURE_WRONG_THREAD);
  }
  for (EmulatedStream* branch : capture->branches) branch->capture = nullptr;
  captures_.erase(std::find(captures_.begin(), captures_.end(), capture));
  if (!capture->is_valid() || !capture->is_joined()) {
    release(call.lock, *capture);
    return capture->is_valid() ? CudaStatus::STREAM_CAPTURE_UNJOINED
                               : CudaStatus::STREAM_CAPTURE_INVALIDATED;
  }
  capture->queues.reserve(capture->branches.size());
  for (const EmulatedStream* branch : capture->branches) {
    capture->queues.push_back(&streams_.create(call.lock, branch->device));
    capture->queues.back()->is_default = true;  // nobody's handle
  }
  graphs_.push_back(capture);
  *graph = capture.get();
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::launch_graph(EmulatedGraph graph, detail::CudaStream stream) {
  Call call(*this, "cuda.launch_graph");
  if (const auto refused = call.begin_on(stream)) return *refused;
  const bool is_known = std::any_of(graphs_.begin(), graphs_.end(),
                                    [&](const auto& known) { return known.get() == graph; });
  if (!is_known) {
    machine_.report(call.lock, "a graph was launched that was destroyed, or never made");
    return CudaStatus::INVALID_VALUE;
  }
  if (call.stream->capture != nullptr) {
    return invalidate(call.lock, *call.stream->capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
  }
  if (call.fault.has_value()) apply_fault(call.lock, *call.stream, *call.fault);
  launch_steps(call.lock, *graph, *call.stream);
  return CudaStatus::SUCCESS;
}

// The branches run in queues of the graph, between two moments of the stream. A branch that nothing is waited for has no
// operations, so the end of the origin's branch is the end of all.
void EmulatedCuda::launch_steps(EmulatedMachine::Lock& lock, EmulatedCapture& graph,
                                EmulatedStream& stream) {
  const std::shared_ptr<Moment> begin = streams_.push_moment(lock, stream);
  for (EmulatedStream* queue : graph.queues) streams_.push_wait(lock, *queue, begin);
  std::vector<std::shared_ptr<Moment>> moments(graph.num_slots);
  for (auto& moment : moments) moment = std::make_shared<Moment>();
  for (const EmulatedCapture::Step& step : graph.steps) {
    EmulatedStream& queue = *graph.queues[step.branch];
    switch (step.kind) {
      case EmulatedCapture::StepKind::RUN:
        streams_.push(lock, queue, step.make(lock, queue));
        break;
      case EmulatedCapture::StepKind::RECORD:
        streams_.push_moment(lock, queue, moments[step.slot]);
        break;
      case EmulatedCapture::StepKind::WAIT:
        streams_.push_wait(lock, queue, moments[step.slot]);
        break;
    }
  }
  streams_.push_wait(lock, stream, streams_.push_moment(lock, *graph.queues.front()));
}

void EmulatedCuda::release(EmulatedMachine::Lock& lock, EmulatedCapture& graph) {
  for (const auto& allocation : graph.allocations) {
    memory_.forget(*allocation);
    memory_.return_bytes(allocation->device, allocation->address, allocation->capacity_bytes);
  }
  for (const auto& end : graph.at_end) end(lock);
  machine_.notify();
}

CudaStatus EmulatedCuda::destroy_graph(EmulatedGraph graph) {
  Call call(*this, "cuda.destroy_graph");
  if (const auto refused = call.begin_query(-1, graph)) return *refused;
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const auto& known) { return known.get() == graph; });
  if (found == graphs_.end()) {
    machine_.report(call.lock, "a graph was destroyed twice");
    return CudaStatus::INVALID_VALUE;
  }
  for (EmulatedStream* queue : (*found)->queues) {
    queue->is_destroyed = true;
    queue->wake.notify_all();
  }
  release(call.lock, **found);
  graphs_.erase(found);
  return CudaStatus::SUCCESS;
}

}  // namespace crossdevice::testing
