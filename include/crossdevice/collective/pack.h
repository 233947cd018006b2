// SPDX-License-Identifier: Apache-2.0
/// Packs: which ranges of which tensors of a batch travel, and complete, together.
///
/// TF counterparts: the concat-and-split packer (num_packs), group_by_size (bytes_per_pack) and the aggregation of small
/// tensors (agg_small_grads_*). A pack is a list of element ranges and nothing more: engines in one process reduce the
/// ranges where they lie, and copy nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/int64.h"

namespace crossdevice {

/// Elements [begin, begin + count) of tensor `tensor` of the batch.
struct ElementRange {
  std::size_t tensor = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// The unit of scheduling and completion. All ranges have one dtype; they are in the order in which the tensors are packed.
struct Pack {
  DType dtype = DType::FLOAT32;
  std::vector<ElementRange> ranges;
  [[nodiscard]] CROSSDEVICE_EXPORT std::size_t num_elements() const;
  [[nodiscard]] std::size_t size_bytes() const { return num_elements() * size_in_bytes(dtype); }
  friend bool operator==(const Pack&, const Pack&) = default;
};

/// What packing needs to know of a tensor.
struct TensorSize {
  DType dtype = DType::FLOAT32;
  std::size_t num_elements = 0;
  [[nodiscard]] std::size_t size_bytes() const { return num_elements * size_in_bytes(dtype); }
  friend bool operator==(const TensorSize&, const TensorSize&) = default;
};

/// Which of TF's rules applies: the first that is set, in this order.
///
/// Errors   (of make_packs) ValueError: a negative number.
struct PackingOptions {
  Int64 num_packs = 0;                  ///< > 0: concat-and-split
  Int64 agg_small_grads_max_bytes = 0;  ///< both > 0: aggregate small tensors
  Int64 agg_small_grads_max_group = 0;
  /// > 0: group by size, last tensor first (gradients appear in reverse).
  Int64 bytes_per_pack = 0;
  friend bool operator==(const PackingOptions&, const PackingOptions&) = default;
};

/// TF's split sizes of concat-and-split: T / P in each pack but the last, which takes the remainder: (10, 3) -> 3, 3, 4.
///
/// Errors   ValueError: num_packs is not positive.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::size_t> split_sizes(std::size_t num_elements,
                                                                      Int64 num_packs);

/// TF's group_by_size: consecutive tensors in order; a pack is closed once it holds strictly more than `bytes_per_pack`.
/// 0 means one pack of everything (also of nothing).
///
/// Errors   ValueError: bytes_per_pack is negative.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<std::vector<std::size_t>> group_by_size(
    std::span<const std::size_t> sizes_bytes, Int64 bytes_per_pack);

/// Consecutive indices, and the ones that stand alone.
struct IndexRuns {
  struct Run {
    std::size_t first = 0;
    std::size_t last = 0;  ///< inclusive
    friend bool operator==(const Run&, const Run&) = default;
  };
  std::vector<Run> runs;
  std::vector<std::size_t> singles;
};

/// TF's extract_ranges over ascending indices. With TF's rule a run may hold up to limit + 2 elements (kept: the catalogue's
/// rows are exact); make_packs caps a group at max_group itself.
[[nodiscard]] CROSSDEVICE_EXPORT IndexRuns extract_ranges(std::span<const std::size_t> indices,
                                                          std::size_t range_size_limit);

/// The packs of a batch. Every element of every tensor lies in exactly one range; a tensor without elements has one empty
/// range. Packs hold one dtype each, so that mixed batches work (TF's fail): a mixed batch is packed as one batch per dtype,
/// so num_packs counts the packs of each dtype, and neighbours in a group are neighbours within their dtype.
///
/// Aggregation  a tensor is small when its bytes do not exceed max_bytes, whatever its dtype (TF: float32 only); a group is
///          two to max_group small neighbours (TF: up to max_group + 2), cut as early as possible.
/// Order    the order in which packs can leave when the tensors become ready one after the other: input order for
///          concat-and-split, aggregation (groups first, as TF, then the others) and no rule (one pack per tensor);
///          reversed input order for bytes_per_pack. Packs of several dtypes are ordered by their last tensor. Empty packs
///          keep their place.
/// Errors   ValueError: an option is negative.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<Pack> make_packs(std::span<const TensorSize> tensors,
                                                              const PackingOptions& options);

}  // namespace crossdevice
