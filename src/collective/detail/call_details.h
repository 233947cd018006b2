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

/// A request whose particulars have something besides. Refers to the request.
class Telling : public CallParticulars {
 public:
  void describe(CallDetails& details) const final;
  /// The request with these.
  [[nodiscard]] CollectiveRequest request() const;

 protected:
  explicit Telling(const CollectiveRequest& request) : request_(request) {}

 private:
  virtual void add_own(CallDetails& details) const = 0;

  const CollectiveRequest& request_;
};

/// Its values. Refers to them.
class TellingValues final : public Telling {
 public:
  TellingValues(const CollectiveRequest& request, std::span<const CollectiveValue> values)
      : Telling(request), values_(values) {}

 private:
  void add_own(CallDetails& details) const override;

  std::span<const CollectiveValue> values_;
};

/// One tensor, to which it refers, and a root.
class TellingRoot final : public Telling {
 public:
  TellingRoot(const CollectiveRequest& request, const Tensor& tensor, int root)
      : Telling(request), tensor_(tensor), root_(root) {}

 private:
  void add_own(CallDetails& details) const override;

  const Tensor& tensor_;
  int root_;
};

}  // namespace crossdevice::detail
