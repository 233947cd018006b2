// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/batch_groups.h"

namespace crossdevice::detail {

bool BatchGroups::Group::takes(const BatchKind& other, const ReduceItem& item) const {
  return kind == other &&
         (kind.placement == Placement::HOSTS || items[0].value->devices() == item.value->devices());
}

void BatchGroups::Group::add(const ReduceItem& item) {
  items.push_back(item);
  sizes_.push_back({item.value->dtype(), item.value->values()[0].num_elements()});
}

std::span<const Pack> BatchGroups::Group::packs(const PackingOptions& packing) {
  if (packing == PackingOptions()) return {};
  if (!(packing == packing_) || sizes_ != packed_sizes_) {
    packs_ = make_packs(sizes_, packing);
    packed_sizes_ = sizes_;
    packing_ = packing;
  }
  return packs_;
}

void BatchGroups::add(const BatchKind& kind, const ReduceItem& item) {
  for (Group& group : groups_.view()) {
    if (group.takes(kind, item)) return group.add(item);
  }
  Group& group = groups_.add();
  group.kind = kind;
  group.add(item);
}

void BatchGroups::reduce(ReduceOp op, const PackingOptions& packing, ActiveOperation& active) {
  for (const Placement placement : {Placement::GPUS, Placement::HOSTS, Placement::MIXED}) {
    for (Group& group : groups_.view()) {
      if (group.kind.placement != placement) continue;
      reduce_batch(op, group.kind.route(),
                   {.items = group.items,
                    .packs = group.packs(packing),
                    .bytes_per_pack = static_cast<std::size_t>(packing.bytes_per_pack.value()),
                    .placement = placement,
                    .nccl = group.kind.nccl},
                   active);
    }
  }
}

}  // namespace crossdevice::detail
