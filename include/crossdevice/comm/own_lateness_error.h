// SPDX-License-Identifier: Apache-2.0
/// A deadline that nobody else has missed.
#pragma once

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// The deadline has passed on a member, this one or another, that was waiting for nobody; so it says itself, and is the only culprit. Whether others come
/// to say what they were doing changes nothing of that.
class OwnLatenessError final : public DeadlineExceededError {
 public:
  using DeadlineExceededError::DeadlineExceededError;
};

}  // namespace crossdevice::detail
