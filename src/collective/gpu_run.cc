// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/gpu_run.h"

#include <exception>
#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

GpuContents GpuContents::of(std::span<const GpuReduceTensor> tensors) {
  GpuContents contents = of(tensors[0].inputs[0]);
  for (const GpuReduceTensor& tensor : tensors.subspan(1)) {
    const Tensor& first = tensor.inputs[0];
    contents.size_bytes += first.size_bytes();
    if (contents.dtype != first.dtype()) contents.dtype.reset();
  }
  return contents;
}

TraceArguments trace_arguments(const OperationRecord& record, const GpuContents& contents,
                               const char* algorithm) {
  return {.sequence = record.sequence,
          .num_bytes = contents.size_bytes,
          .dtype = contents.dtype.has_value() ? to_string(*contents.dtype) : "mixed",
          .algorithm = algorithm};
}

void GpuRun::begin() {
  lanes_.gather_streams();
  is_open_ = true;
  if (is_captured_) return;
  start_ = GpuEvent::record(*lanes_[0].device, lanes_[0].stream);
  for (std::size_t i = 0; i < lanes_.size(); ++i) span_.begin(*lanes_[i].device, lanes_[i].stream);
}

WatchedOperation GpuRun::watched(const GpuOperation& operation, const GpuContents& contents) const {
  WatchedOperation result;
  result.record = operation.record;
  result.size_bytes = contents.size_bytes;
  result.dtype = contents.dtype;
  result.timeout_seconds = operation.timeout_seconds;
  result.inputs_intact = !operation.is_in_place;
  result.devices = lanes_.names();
  return result;
}

void GpuRun::end(const GpuOperation& operation, const GpuContents& contents,
                 std::shared_ptr<NcclClique> clique) {
  lanes_.release_streams();
  is_open_ = false;
  if (is_captured_ || operation.record.kind.empty()) return;
  span_.end(operation.record.kind.data(),
            [&] { return trace_arguments(operation.record, contents); });
  WatchedOperation enqueued = watched(operation, contents);
  enqueued.start = start_;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    enqueued.ends.push_back(GpuEvent::record(*lanes_[i].device, lanes_[i].stream));
  }
  enqueued.clique = std::move(clique);
  enqueued.listener = operation.listener;
  enqueued.stream = lanes_[0].stream;
  if (enqueued.listener != nullptr) {
    enqueued.listener->operation_enqueued(enqueued.record.sequence, enqueued.clique);
  }
  const std::shared_ptr<FailureListener> listener = enqueued.listener;
  const std::uint64_t sequence = enqueued.record.sequence;
  try {
    watch(std::move(enqueued));
  } catch (...) {
    if (listener != nullptr) listener->operation_completed(sequence);  // nobody else would say it
    throw;
  }
}

void GpuRun::rethrow(const OpError& error, const GpuOperation& operation,
                     const GpuContents& contents) const {
  if (!operation.record.kind.empty() && error.code() != StatusCode::FAILED_PRECONDITION) {
    try {
      record_failed_launch(watched(operation, contents), std::current_exception());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // No memory for a record: the error itself says more.
    }
  }
  if (has_written_ && operation.is_in_place) throw_with_inputs_changed(error);
  throw;  // `error`, as the caught one that it is
}

GpuRun::~GpuRun() {
  if (!is_open_) return;
  try {
    // What was enqueued may touch other GPUs' memory, which is freed in the order of their streams.
    lanes_.meet();
    lanes_.release_streams();
  } catch (...) {
    // The error that left the operation half way is on its way already.
  }
}

}  // namespace crossdevice::detail
