// SPDX-License-Identifier: Apache-2.0
/// Cuts batches into chunks.
#include "collective/detail/chunk_plan.h"

#include <algorithm>

namespace crossdevice::detail {
namespace {

// A chunk costs a thread some 50 ns to fetch. 256 KiB of each of two streams are 30 us of memory traffic: long enough to
// hide that and to keep the prefetchers running, short enough to stop soon and to spread evenly.
constexpr std::size_t kMaxChunkBytes = std::size_t{256} << 10;
constexpr std::size_t kMinChunkBytes = std::size_t{16} << 10;
// Several per thread, so that a thread that comes late or is interrupted does not make the others wait long.
constexpr std::size_t kChunksPerThread = 8;
// Long ranges are cut at pages counted from the tensor's start: no two threads write to one cache line or page.
constexpr std::size_t kCutBytes = 4096;
// What a piece costs besides its bytes: the call of a kernel, as bytes of traffic.
constexpr std::size_t kPieceOverheadBytes = 256;

/// Bytes of one element in the widest of a tensor's streams.
std::size_t stream_element_bytes(ReduceOp op, DType dtype) {
  return std::max(size_in_bytes(dtype), size_in_bytes(result_dtype(op, dtype)));
}

}  // namespace

std::size_t traffic_bytes(ReduceOp op, const DirectReduceTensor& tensor) {
  const std::size_t read = tensor.inputs.size() * size_in_bytes(tensor.dtype);
  const std::size_t written = tensor.outputs.size() * size_in_bytes(result_dtype(op, tensor.dtype));
  return tensor.num_elements * (read + written);
}

void ChunkPlan::rebuild(ReduceOp op, std::span<const DirectReduceTensor> tensors,
                        std::span<const Pack> packs, std::size_t num_threads) {
  pieces_.clear();
  chunk_ends_.clear();
  pieces_per_tensor_.assign(tensors.size(), 0);

  traffic_bytes_ = 0;
  std::size_t stream_bytes = 0;
  for (const DirectReduceTensor& tensor : tensors) {
    traffic_bytes_ += detail::traffic_bytes(op, tensor);
    stream_bytes += tensor.num_elements * stream_element_bytes(op, tensor.dtype);
  }
  target_bytes_ =
      std::clamp(stream_bytes / (num_threads * kChunksPerThread), kMinChunkBytes, kMaxChunkBytes);
  room_bytes_ = target_bytes_;

  if (packs.empty()) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      add_range({.tensor = t, .begin = 0, .count = tensors[t].num_elements},
                stream_element_bytes(op, tensors[t].dtype));
    }
  }
  for (const Pack& pack : packs) {
    const std::size_t element_bytes = stream_element_bytes(op, pack.dtype);
    for (const ElementRange& range : pack.ranges) add_range(range, element_bytes);
  }
  close_chunk();
}

void ChunkPlan::add_range(const ElementRange& range, std::size_t element_bytes) {
  const std::size_t cut_elements = kCutBytes / element_bytes;
  const std::size_t end = range.begin + range.count;
  std::size_t begin = range.begin;
  do {
    std::size_t piece_end = end;
    if ((end - begin) * element_bytes > room_bytes_) {
      piece_end = (begin + room_bytes_ / element_bytes) / cut_elements * cut_elements;
      if (piece_end <= begin) {  // no cut fits into this chunk; a fresh one takes many
        close_chunk();
        continue;
      }
    }
    pieces_.push_back({.tensor = range.tensor, .begin = begin, .count = piece_end - begin});
    ++pieces_per_tensor_[range.tensor];
    const std::size_t used_bytes = (piece_end - begin) * element_bytes + kPieceOverheadBytes;
    room_bytes_ -= std::min(room_bytes_, used_bytes);
    begin = piece_end;
    if (room_bytes_ == 0) close_chunk();
  } while (begin < end);
}

void ChunkPlan::close_chunk() {
  const std::size_t begin = chunk_ends_.empty() ? 0 : chunk_ends_.back();
  if (pieces_.size() > begin) chunk_ends_.push_back(pieces_.size());
  room_bytes_ = target_bytes_;
}

}  // namespace crossdevice::detail
