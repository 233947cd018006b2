// SPDX-License-Identifier: Apache-2.0
/// The physical limits that times are held against: what this machine's memory can do with the same buffers.
///
/// Each is measured with both ways of walking through memory, and the faster one counts. They move the same bytes, over the same memory (so the same pages and working set), with the same threads as the library's own loops.
///   in_place_scale     every input is multiplied by a constant where it lies: each byte is read once and written once
///   non_temporal_copy  every input is copied to memory of the same size, past the caches: each byte is read once and written once
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "crossdevice/device/tensor.h"

#include "collective/case_buffers.h"
#include "collective/collective.h"
#include "collective/limit_kernels.h"

namespace crossdevice::bench {

/// Who runs the loops: the library's threads, or the caller alone, as in workers that have a core each.
enum class LimitThreads : bool { POOL, CALLER };

class Limit {
 public:
  /// Memory   keeps pointers into `buffers`. Where a case has fewer output bytes than input bytes the copy's targets are completed by
  ///          memory from the pool.
  Limit(const Case& test_case, const CaseBuffers& buffers, Placement placement,
        LimitThreads threads = LimitThreads::POOL);

  [[nodiscard]] static std::string_view name(Placement placement) {
    return placement == Placement::IN_PLACE ? "in_place_scale" : "non_temporal_copy";
  }
  /// Bytes read plus bytes written by run().
  [[nodiscard]] std::size_t traffic_bytes() const { return traffic_bytes_; }
  /// Every input holds ones afterwards: scaling what the case's patterns hold as bits would measure denormal numbers.
  void prepare(OwnerThreads& owners) const;
  void run(Walk walk) const;

 private:
  struct Range {
    std::byte* source = nullptr;
    std::byte* target = nullptr;  // the source itself for the scale
    std::size_t size_bytes = 0;
  };
  void run_piece(std::size_t index, Walk walk) const;
  void add(std::byte* source, std::byte* target, std::size_t size_bytes);

  std::vector<std::vector<Range>> inputs_of_owner_;
  std::vector<Range> pieces_;
  std::vector<Tensor> scratch_;
  std::size_t traffic_bytes_ = 0;
  LimitThreads threads_;
};

}  // namespace crossdevice::bench
