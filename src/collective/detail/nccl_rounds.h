// SPDX-License-Identifier: Apache-2.0
/// What goes to NCCL together, and what of it through a staging buffer: a batch's packs cut into rounds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/pack.h"

namespace crossdevice::detail {

/// A range that NCCL reduces where it lies, or a part of a staging buffer.
struct NcclPiece {
  ElementRange range;
  bool is_staged = false;
  std::size_t offset_bytes = 0;  ///< in the staging buffer
};

/// One group of NCCL calls.
struct NcclRound {
  DType dtype = DType::FLOAT32;
  std::size_t first_piece = 0;
  std::size_t num_pieces = 0;
  std::size_t staged_bytes = 0;  ///< up to the end of its last staged piece
};

/// Made anew for every batch, in memory that is kept.
struct NcclRounds {
  std::vector<NcclPiece> pieces;
  std::vector<NcclRound> rounds;

  void clear();
  [[nodiscard]] std::span<const NcclPiece> pieces_of(const NcclRound& round) const {
    return std::span(pieces).subspan(round.first_piece, round.num_pieces);
  }
  /// Bytes that a staging buffer must have; 0: nothing is staged.
  [[nodiscard]] std::size_t staging_bytes() const;
  [[nodiscard]] std::size_t num_staged_rounds() const;
};

inline constexpr std::size_t kLargestStagedRange = std::size_t{1} << 20;
inline constexpr std::size_t kUnpackedStagingBytes = std::size_t{64} << 20;

/// `packs` empty: one for each of `tensors`. Empty ranges are left out.
void make_nccl_rounds(std::span<const TensorSize> tensors, std::span<const Pack> packs,
                      std::size_t bytes_per_pack, NcclRounds& rounds);

}  // namespace crossdevice::detail
