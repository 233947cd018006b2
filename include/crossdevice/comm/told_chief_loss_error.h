// SPDX-License-Identifier: Apache-2.0
/// The chief is gone, says another worker.
#pragma once

#include <string>
#include <utility>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// A member has given up an operation because it hears nothing of the chief any more, and has told the others, who may hear it still. The chief is the only
/// culprit, as the teller has it.
class ToldChiefLossError final : public UnavailableError {
 public:
  ToldChiefLossError(const std::string& message, OpErrorDetails details, RankInfo teller)
      : UnavailableError(message, std::move(details)), teller_(std::move(teller)) {}
  [[nodiscard]] const RankInfo& teller() const { return teller_; }

 private:
  RankInfo teller_;
};

}  // namespace crossdevice::detail
