// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/status_error.h"

#include <utility>

namespace crossdevice::detail {

void throw_status(StatusCode code, const std::string& text, std::vector<RankInfo> culprits) {
  OpErrorDetails details{.operation = {}, .culprits = std::move(culprits), .inputs_intact = true};
  switch (code) {
    case StatusCode::CANCELLED:
      throw CancelledError(text, std::move(details));
    case StatusCode::DEADLINE_EXCEEDED:
      throw DeadlineExceededError(text, std::move(details));
    case StatusCode::FAILED_PRECONDITION:
      throw FailedPreconditionError(text, std::move(details));
    case StatusCode::ABORTED:
      throw AbortedError(text, std::move(details));
    case StatusCode::UNAVAILABLE:
      throw UnavailableError(text, std::move(details));
    case StatusCode::UNIMPLEMENTED:
      throw UnimplementedError(text, std::move(details));
    case StatusCode::RESOURCE_EXHAUSTED:
      throw ResourceExhaustedError(text, std::move(details));
    case StatusCode::INTERNAL:
      throw InternalError(text, std::move(details));
  }
  throw InternalError(text, std::move(details));
}

}  // namespace crossdevice::detail
