// SPDX-License-Identifier: Apache-2.0
/// TF's three packing rules, applied to each dtype of a batch on its own.
#include "crossdevice/collective/pack.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

/// The tensors of one dtype, in the order in which they are packed.
struct DTypeBatch {
  DType dtype = DType::FLOAT32;
  std::vector<std::size_t> tensors;
};

/// A pack and when it can leave: the place, in packing order, of the last tensor it holds a part of.
struct PlacedPack {
  Pack pack;
  std::size_t last_place = 0;
};

void require_not_negative(Int64 value, const char* name) {
  if (value.value() < 0) {
    throw ValueError(std::string(name) + " must not be negative, got " +
                     std::to_string(value.value()));
  }
}

/// The batch by dtype, in order of first appearance in `order`.
std::vector<DTypeBatch> split_by_dtype(std::span<const TensorSize> tensors,
                                       std::span<const std::size_t> order) {
  std::vector<DTypeBatch> batches;
  std::array<std::size_t, kNumDTypes> batch_of_dtype{};  // 1 + index in batches; 0: none yet
  for (const std::size_t tensor : order) {
    const DType dtype = tensors[tensor].dtype;
    std::size_t& batch = batch_of_dtype[static_cast<std::size_t>(dtype)];
    if (batch == 0) {
      batches.push_back({.dtype = dtype, .tensors = {}});
      batch = batches.size();
    }
    batches[batch - 1].tensors.push_back(tensor);
  }
  return batches;
}

ElementRange whole(std::span<const TensorSize> tensors, std::size_t tensor) {
  return {.tensor = tensor, .begin = 0, .count = tensors[tensor].num_elements};
}

Pack pack_of_whole_tensors(std::span<const TensorSize> tensors,
                           std::span<const std::size_t> members) {
  Pack pack{.dtype = tensors[members.front()].dtype, .ranges = {}};
  pack.ranges.reserve(members.size());
  for (const std::size_t tensor : members) pack.ranges.push_back(whole(tensors, tensor));
  return pack;
}

/// Cuts the concatenation of one dtype's tensors into pieces that ignore the tensors' edges.
std::vector<Pack> concat_and_split(std::span<const TensorSize> tensors, const DTypeBatch& batch,
                                   Int64 num_packs) {
  std::size_t total = 0;
  for (const std::size_t tensor : batch.tensors) total += tensors[tensor].num_elements;
  const std::vector<std::size_t> sizes = split_sizes(total, num_packs);

  std::vector<Pack> packs(sizes.size(), Pack{.dtype = batch.dtype, .ranges = {}});
  std::size_t pack = 0;
  std::size_t room = sizes[0];
  for (const std::size_t tensor : batch.tensors) {
    const std::size_t count = tensors[tensor].num_elements;
    if (count == 0) packs[pack].ranges.push_back(whole(tensors, tensor));
    for (std::size_t begin = 0; begin < count;) {
      while (room == 0) room = sizes[++pack];  // the sizes add up, so there is always a next one
      const std::size_t taken = std::min(room, count - begin);
      packs[pack].ranges.push_back({.tensor = tensor, .begin = begin, .count = taken});
      begin += taken;
      room -= taken;
    }
  }
  return packs;
}

std::vector<Pack> group_one_dtype_by_size(std::span<const TensorSize> tensors,
                                          const DTypeBatch& batch, Int64 bytes_per_pack) {
  std::vector<std::size_t> sizes;
  sizes.reserve(batch.tensors.size());
  for (const std::size_t tensor : batch.tensors) sizes.push_back(tensors[tensor].size_bytes());
  std::vector<Pack> packs;
  std::vector<std::size_t> members;
  for (const std::vector<std::size_t>& group : group_by_size(sizes, bytes_per_pack)) {
    members.clear();
    for (const std::size_t place : group) members.push_back(batch.tensors[place]);
    packs.push_back(pack_of_whole_tensors(tensors, members));
  }
  return packs;
}

/// Merges the packs of all dtypes into the order in which they can leave; packs of one dtype keep their order.
std::vector<Pack> merge_in_order(std::span<const std::size_t> order,
                                 std::vector<std::vector<Pack>> packs_by_dtype) {
  std::vector<std::size_t> place_of_tensor(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) place_of_tensor[order[place]] = place;

  std::vector<PlacedPack> placed;
  for (std::vector<Pack>& packs : packs_by_dtype) {
    std::size_t last_place = 0;  // an empty pack follows its predecessor
    for (Pack& pack : packs) {
      if (!pack.ranges.empty()) last_place = place_of_tensor[pack.ranges.back().tensor];
      placed.push_back({.pack = std::move(pack), .last_place = last_place});
    }
  }
  std::ranges::stable_sort(placed, {}, &PlacedPack::last_place);

  std::vector<Pack> result;
  result.reserve(placed.size());
  for (PlacedPack& item : placed) result.push_back(std::move(item.pack));
  return result;
}

/// Groups of small neighbours, then everything else.
std::vector<Pack> aggregate_small_tensors(std::span<const TensorSize> tensors,
                                          std::span<const std::size_t> order, Int64 max_bytes,
                                          Int64 max_group) {
  const auto byte_limit = static_cast<std::uint64_t>(max_bytes.value());
  const auto group_limit = static_cast<std::uint64_t>(max_group.value());
  std::vector<std::vector<Pack>> groups_by_dtype;
  std::vector<bool> grouped(tensors.size(), false);
  for (const DTypeBatch& batch : split_by_dtype(tensors, order)) {
    std::vector<Pack>& groups = groups_by_dtype.emplace_back();
    std::vector<std::size_t> run;
    const auto close_run = [&] {
      if (run.size() > 1) {
        groups.push_back(pack_of_whole_tensors(tensors, run));
        for (const std::size_t tensor : run) grouped[tensor] = true;
      }
      run.clear();
    };
    for (const std::size_t tensor : batch.tensors) {
      if (tensors[tensor].size_bytes() > byte_limit) {
        close_run();
        continue;
      }
      run.push_back(tensor);
      if (run.size() >= group_limit) close_run();
    }
    close_run();
  }

  std::vector<Pack> packs = merge_in_order(order, std::move(groups_by_dtype));
  for (const std::size_t tensor : order) {
    if (!grouped[tensor]) packs.push_back(pack_of_whole_tensors(tensors, std::span(&tensor, 1)));
  }
  return packs;
}

}  // namespace

std::size_t Pack::num_elements() const {
  std::size_t total = 0;
  for (const ElementRange& range : ranges) total += range.count;
  return total;
}

std::vector<std::size_t> split_sizes(std::size_t num_elements, Int64 num_packs) {
  if (num_packs.value() <= 0) {
    throw ValueError("num_packs must be positive, got " + std::to_string(num_packs.value()));
  }
  const auto count = static_cast<std::size_t>(num_packs.value());
  const std::size_t each = num_elements / count;
  std::vector<std::size_t> sizes(count, each);
  sizes.back() = num_elements - each * (count - 1);
  return sizes;
}

std::vector<std::vector<std::size_t>> group_by_size(std::span<const std::size_t> sizes_bytes,
                                                    Int64 bytes_per_pack) {
  require_not_negative(bytes_per_pack, "bytes_per_pack");
  const auto limit = static_cast<std::uint64_t>(bytes_per_pack.value());
  std::vector<std::vector<std::size_t>> packs;
  if (limit == 0) packs.emplace_back();
  std::size_t held = 0;
  for (std::size_t i = 0; i < sizes_bytes.size(); ++i) {
    if (packs.empty() || (limit != 0 && held > limit)) {
      packs.emplace_back();
      held = 0;
    }
    packs.back().push_back(i);
    held += sizes_bytes[i];
  }
  return packs;
}

IndexRuns extract_ranges(std::span<const std::size_t> indices, std::size_t range_size_limit) {
  IndexRuns result;
  if (indices.empty()) return result;
  IndexRuns::Run run{.first = indices[0], .last = indices[0]};
  const auto close_run = [&] {
    if (run.first == run.last) {
      result.singles.push_back(run.first);
    } else {
      result.runs.push_back(run);
    }
  };
  for (const std::size_t index : indices.subspan(1)) {
    // TF measures the run before it grows, hence limit + 2 elements.
    if (index == run.last + 1 && run.last - run.first <= range_size_limit) {
      run.last = index;
      continue;
    }
    close_run();
    run = {.first = index, .last = index};
  }
  close_run();
  return result;
}

std::vector<Pack> make_packs(std::span<const TensorSize> tensors, const PackingOptions& options) {
  require_not_negative(options.num_packs, "num_packs");
  require_not_negative(options.agg_small_grads_max_bytes, "agg_small_grads_max_bytes");
  require_not_negative(options.agg_small_grads_max_group, "agg_small_grads_max_group");
  require_not_negative(options.bytes_per_pack, "bytes_per_pack");

  const bool splits = options.num_packs > 0;
  const bool aggregates =
      options.agg_small_grads_max_bytes > 0 && options.agg_small_grads_max_group > 0;
  const bool groups = options.bytes_per_pack > 0;

  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!splits && aggregates) {
    return aggregate_small_tensors(tensors, order, options.agg_small_grads_max_bytes,
                                   options.agg_small_grads_max_group);
  }
  if (!splits && !groups) {
    std::vector<Pack> packs;
    packs.reserve(tensors.size());
    for (const std::size_t tensor : order) {
      packs.push_back(pack_of_whole_tensors(tensors, std::span(&tensor, 1)));
    }
    return packs;
  }
  if (!splits) std::ranges::reverse(order);

  std::vector<std::vector<Pack>> packs_by_dtype;
  for (const DTypeBatch& batch : split_by_dtype(tensors, order)) {
    packs_by_dtype.push_back(splits
                                 ? concat_and_split(tensors, batch, options.num_packs)
                                 : group_one_dtype_by_size(tensors, batch, options.bytes_per_pack));
  }
  return merge_in_order(order, std::move(packs_by_dtype));
}

}  // namespace crossdevice
