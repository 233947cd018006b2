// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/nccl_rounds.h"

#include <algorithm>

namespace crossdevice::detail {
namespace {

/// Where 16-byte accesses of every kernel begin.
constexpr std::size_t kPieceAlignment = 16;

std::size_t aligned(std::size_t offset) {
  return (offset + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

/// Cuts the ranges of one pack after the other into rounds.
class RoundMaker {
 public:
  RoundMaker(std::size_t bytes_per_pack, NcclRounds& rounds)
      : bytes_per_pack_(bytes_per_pack),
        capacity_(bytes_per_pack == 0 ? kUnpackedStagingBytes
                                      : bytes_per_pack + kLargestStagedRange),
        rounds_(rounds) {}

  void add(DType dtype, std::span<const ElementRange> ranges) {
    const std::size_t size = size_in_bytes(dtype);
    std::size_t pack_bytes = 0;
    for (const ElementRange& range : ranges) pack_bytes += range.count * size;
    const std::size_t large =
        std::min(kLargestStagedRange, bytes_per_pack_ == 0 ? pack_bytes : bytes_per_pack_);
    open(dtype);
    for (const ElementRange& range : ranges) {
      if (range.count == 0) continue;
      const std::size_t bytes = range.count * size;
      if (bytes >= large || ranges.size() == 1) {
        push({.range = range});
        continue;
      }
      std::size_t offset = aligned(round().staged_bytes);
      if (offset + bytes > capacity_ && round().staged_bytes != 0) {
        open(dtype);
        offset = 0;
      }
      push({.range = range, .is_staged = true, .offset_bytes = offset});
      round().staged_bytes = offset + bytes;
    }
    if (round().num_pieces == 0) rounds_.rounds.pop_back();
  }

 private:
  NcclRound& round() { return rounds_.rounds.back(); }
  void open(DType dtype) {
    rounds_.rounds.push_back({.dtype = dtype, .first_piece = rounds_.pieces.size()});
  }
  void push(const NcclPiece& piece) {
    rounds_.pieces.push_back(piece);
    ++round().num_pieces;
  }

  std::size_t bytes_per_pack_;
  std::size_t capacity_;
  NcclRounds& rounds_;
};

}  // namespace

void NcclRounds::clear() {
  pieces.clear();
  rounds.clear();
}

std::size_t NcclRounds::staging_bytes() const {
  std::size_t most = 0;
  for (const NcclRound& round : rounds) most = std::max(most, round.staged_bytes);
  return most;
}

std::size_t NcclRounds::num_staged_rounds() const {
  return static_cast<std::size_t>(
      std::count_if(rounds.begin(), rounds.end(),
                    [](const NcclRound& round) { return round.staged_bytes != 0; }));
}

void make_nccl_rounds(std::span<const TensorSize> tensors, std::span<const Pack> packs,
                      std::size_t bytes_per_pack, NcclRounds& rounds) {
  rounds.clear();
  RoundMaker maker(bytes_per_pack, rounds);
  for (const Pack& pack : packs) maker.add(pack.dtype, pack.ranges);
  if (!packs.empty()) return;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ElementRange whole{i, 0, tensors[i].num_elements};
    maker.add(tensors[i].dtype, std::span<const ElementRange>(&whole, 1));
  }
}

}  // namespace crossdevice::detail
