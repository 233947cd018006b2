// SPDX-License-Identifier: Apache-2.0
/// What must be equal of a collective call, in words, where it was not.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/comm/call_difference.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::detail {

/// `deterministic` and the like, and its particulars.
[[nodiscard]] CallDetails details_of(const CollectiveRequest& request);
/// With its values.
[[nodiscard]] CallDetails details_of(const CollectiveRequest& request,
                                     std::span<const CollectiveValue> values);

/// A request whose particulars have the values besides. Refers to both.
class TellingValues final : public CallParticulars {
 public:
  TellingValues(const CollectiveRequest& request, std::span<const CollectiveValue> values)
      : request_(request), values_(values) {}
  void describe(CallDetails& details) const override;
  /// The request with these.
  [[nodiscard]] CollectiveRequest request() const {
    CollectiveRequest telling = request_;
    telling.particulars = this;
    return telling;
  }

 private:
  const CollectiveRequest& request_;
  std::span<const CollectiveValue> values_;
};

/// The same of one tensor and a root.
class TellingRoot final : public CallParticulars {
 public:
  TellingRoot(const CollectiveRequest& request, const Tensor& tensor, int root)
      : request_(request), tensor_(tensor), root_(root) {}
  void describe(CallDetails& details) const override;
  [[nodiscard]] CollectiveRequest request() const {
    CollectiveRequest telling = request_;
    telling.particulars = this;
    return telling;
  }

 private:
  const CollectiveRequest& request_;
  const Tensor& tensor_;
  int root_;
};

}  // namespace crossdevice::detail
