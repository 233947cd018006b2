// SPDX-License-Identifier: Apache-2.0
/// What the fingerprints of CollectiveAllReduce's calls are made of, in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <fmt/format.h>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/call_difference.h"
#include "crossdevice/core/fingerprint.h"
#include "crossdevice/core/int64.h"
#include "crossdevice/ops/cross_device_ops.h"

namespace crossdevice::detail {

/// Of a batch. Refers to its values.
class BatchParticulars final : public CallParticulars {
 public:
  BatchParticulars(std::span<const ValueDestinationPair> pairs, Int64 bytes_per_pack)
      : pairs_(pairs), bytes_per_pack_(bytes_per_pack) {}
  /// What all workers' batches have in common, in one number: a difference is found with the first pack, before any is written.
  [[nodiscard]] std::uint64_t fingerprint() const {
    Fingerprint fingerprint;
    fingerprint.add(static_cast<std::uint64_t>(bytes_per_pack_.value()));
    for (const ValueDestinationPair& pair : pairs_) {
      fingerprint.add(static_cast<std::uint64_t>(pair.value.dtype()) << 1U |
                      (pair.value.is_sparse() ? 1U : 0U));
      // Slices may be of any number.
      if (!pair.value.is_sparse()) fingerprint.add(pair.value.values()[0].num_elements());
    }
    return fingerprint.value();
  }
  void describe(CallDetails& details) const override {
    details.push_back(fmt::format("bytes_per_pack {}", bytes_per_pack_.value()));
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const PerReplica& value = pairs_[i].value;
      const std::string size =
          value.is_sparse() ? "sparse" : std::to_string(value.values()[0].num_elements());
      details.push_back(value_detail(i, size, value.dtype()));
    }
  }

 private:
  std::span<const ValueDestinationPair> pairs_;
  Int64 bytes_per_pack_;
};

class AxisParticulars final : public CallParticulars {
 public:
  explicit AxisParticulars(int axis) : axis_(axis) {}
  void describe(CallDetails& details) const override {
    details.push_back(fmt::format("axis {}", axis_));
  }

 private:
  int axis_;
};

}  // namespace crossdevice::detail
