// SPDX-License-Identifier: Apache-2.0
/// How something is reduced, counted and shown on the timeline.
#pragma once

#include <cstddef>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/trace.h"

namespace crossdevice::detail {

/// One way to reduce, and what is counted of it.
struct ReductionAlgorithm {
  constexpr ReductionAlgorithm(const char* called, const char* labels) noexcept
      : name(called),
        reductions("crossdevice_reductions_total", labels, "Reductions by algorithm."),
        bytes("crossdevice_reduction_bytes_total", labels,
              "Bytes of one replica's values in them.") {}

  const char* name;
  Counter reductions;
  Counter bytes;
};

// In one process.
extern const ReductionAlgorithm kDirectReduction;
extern const ReductionAlgorithm kHierarchicalReduction;
extern const ReductionAlgorithm kScheduledReduction;
extern const ReductionAlgorithm kGpuKernelReduction;
extern const ReductionAlgorithm kNcclReduction;
// Among workers.
extern const ReductionAlgorithm kSharedMemoryReduction;
extern const ReductionAlgorithm kTwoLevelReduction;
extern const ReductionAlgorithm kExchangeReduction;
extern const ReductionAlgorithm kDoublingReduction;
extern const ReductionAlgorithm kReplicaExchangeReduction;
extern const ReductionAlgorithm kShuffleReduction;
extern const ReductionAlgorithm kHalvingDoublingReduction;
extern const ReductionAlgorithm kRingReduction;

/// A part of a reduction, as a bar. `num_bytes()`: of what it deals with; called only if somebody wants the bar. How it is reduced, the bar around it says.
template <class NumBytes>
[[nodiscard]] TraceSpan part_span(const char* name, const NumBytes& num_bytes) noexcept {
  return TraceSpan(name, "collective",
                   [&num_bytes] { return TraceArguments{.num_bytes = num_bytes()}; });
}

/// A reduction from construction to destruction: counted, and a bar "communicate" that says how, as do the operation's and the pack's around it.
class ReductionSpan {
 public:
  ReductionSpan(const ReductionAlgorithm& algorithm, std::size_t size_bytes, DType dtype) noexcept
      : span_("communicate", "collective",
              [size_bytes] { return TraceArguments{.num_bytes = size_bytes}; }) {
    count(algorithm, size_bytes);
    span_.set_how(algorithm.name, span_.is_open() ? to_string(dtype) : std::string_view());
  }
  static void count(const ReductionAlgorithm& algorithm, std::size_t size_bytes) noexcept {
    if (!is_counted()) return;
    ThreadCounters counters;
    counters.add(algorithm.reductions);
    counters.add(algorithm.bytes, size_bytes);
  }

 private:
  TraceSpan span_;
};

}  // namespace crossdevice::detail
