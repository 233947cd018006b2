// SPDX-License-Identifier: Apache-2.0
/// How a batch is cut into chunks, the units that threads take: large tensors into several, many small ones into one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice::detail {

/// Chunks in the order of the packs. Every range of the packs lies in them exactly once, cut where it is long; a chunk may
/// hold ranges of several packs. rebuild() reuses the memory of what was there before.
class ChunkPlan {
 public:
  /// Cuts `packs` (empty: every tensor as a whole, in order) for `num_threads` threads.
  void rebuild(ReduceOp op, std::span<const DirectReduceTensor> tensors,
               std::span<const Pack> packs, std::size_t num_threads);

  [[nodiscard]] std::size_t num_chunks() const { return chunk_ends_.size(); }
  [[nodiscard]] std::span<const ElementRange> chunk(std::size_t chunk) const {
    const std::size_t begin = chunk == 0 ? 0 : chunk_ends_[chunk - 1];
    return std::span(pieces_).subspan(begin, chunk_ends_[chunk] - begin);
  }
  /// Those of all chunks, one after the other: in the order of the packs.
  [[nodiscard]] std::span<const ElementRange> pieces() const { return pieces_; }
  /// Of each tensor: in how many pieces it lies.
  [[nodiscard]] std::span<const std::uint32_t> pieces_per_tensor() const {
    return pieces_per_tensor_;
  }
  /// What the batch reads and writes, in bytes.
  [[nodiscard]] std::size_t traffic_bytes() const { return traffic_bytes_; }

 private:
  void add_range(const ElementRange& range, std::size_t element_bytes);
  void close_chunk();

  std::vector<ElementRange> pieces_;
  std::vector<std::size_t> chunk_ends_;  // indices in pieces_
  std::vector<std::uint32_t> pieces_per_tensor_;
  std::size_t traffic_bytes_ = 0;
  std::size_t target_bytes_ = 0;  // of one stream in one chunk
  std::size_t room_bytes_ = 0;    // what the open chunk still takes
};

/// Bytes that `tensor` reads and writes when it is reduced.
[[nodiscard]] std::size_t traffic_bytes(ReduceOp op, const DirectReduceTensor& tensor);

}  // namespace crossdevice::detail
