// SPDX-License-Identifier: Apache-2.0
// How errors read, and the anchors of their type information.
#include "crossdevice/core/error.h"

#include <iterator>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/format_bytes.h"

namespace crossdevice {

ValueError::~ValueError() = default;
OpError::~OpError() = default;
CancelledError::~CancelledError() = default;
DeadlineExceededError::~DeadlineExceededError() = default;
FailedPreconditionError::~FailedPreconditionError() = default;
AbortedError::~AbortedError() = default;
UnavailableError::~UnavailableError() = default;
UnimplementedError::~UnimplementedError() = default;
ResourceExhaustedError::~ResourceExhaustedError() = default;
InternalError::~InternalError() = default;

OpError::OpError(StatusCode code, const std::string& message, OpErrorDetails details)
    : std::runtime_error(message),
      code_(code),
      details_(std::make_shared<const OpErrorDetails>(std::move(details))) {}

std::string to_string(const RankInfo& rank) {
  std::string text;
  auto out = std::back_inserter(text);
  if (rank.rank >= 0) fmt::format_to(out, "rank {}", rank.rank);
  if (rank.replica >= 0)
    fmt::format_to(out, "{}replica {}", text.empty() ? "" : ", ", rank.replica);
  if (text.empty()) text = "unknown rank";

  const bool has_host = !rank.host.empty();
  const bool has_pid = rank.pid != 0;
  if (has_host && has_pid) {
    fmt::format_to(out, " (host {}, pid {})", rank.host, rank.pid);
  } else if (has_host) {
    fmt::format_to(out, " (host {})", rank.host);
  } else if (has_pid) {
    fmt::format_to(out, " (pid {})", rank.pid);
  }
  if (!rank.last_operation.empty()) fmt::format_to(out, ", last seen in {}", rank.last_operation);
  return text;
}

std::ostream& operator<<(std::ostream& out, const RankInfo& rank) { return out << to_string(rank); }

std::string to_string(const OperationRecord& operation) {
  if (operation.kind.empty()) return "unknown operation";
  return fmt::format("{} #{} ({} {}, {})", operation.kind, operation.sequence, operation.num_values,
                     operation.num_values == 1 ? "value" : "values",
                     format_bytes(operation.size_bytes));
}

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::CANCELLED:
      return "CANCELLED";
    case StatusCode::DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case StatusCode::FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case StatusCode::ABORTED:
      return "ABORTED";
    case StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    case StatusCode::UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case StatusCode::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::INTERNAL:
      return "INTERNAL";
  }
  return "invalid status code";
}

void throw_op_error(StatusCode code, const std::string& message, OpErrorDetails details) {
  switch (code) {
    case StatusCode::CANCELLED:
      throw CancelledError(message, std::move(details));
    case StatusCode::DEADLINE_EXCEEDED:
      throw DeadlineExceededError(message, std::move(details));
    case StatusCode::FAILED_PRECONDITION:
      throw FailedPreconditionError(message, std::move(details));
    case StatusCode::ABORTED:
      throw AbortedError(message, std::move(details));
    case StatusCode::UNAVAILABLE:
      throw UnavailableError(message, std::move(details));
    case StatusCode::UNIMPLEMENTED:
      throw UnimplementedError(message, std::move(details));
    case StatusCode::RESOURCE_EXHAUSTED:
      throw ResourceExhaustedError(message, std::move(details));
    case StatusCode::INTERNAL:
      throw InternalError(message, std::move(details));
  }
  throw InternalError(message, std::move(details));
}

void throw_anew(const OpError& error, const std::string& message, const OperationRecord& operation,
                bool inputs_intact) {
  throw_op_error(error.code(), message,
                 {.operation = operation,
                  .culprits = {error.culprits().begin(), error.culprits().end()},
                  .inputs_intact = inputs_intact});
}

std::exception_ptr said_anew(const OpError& error, const std::string& message,
                             const OperationRecord& operation, bool inputs_intact) noexcept {
  try {
    throw_anew(error, message, operation, inputs_intact);
  } catch (...) {
    return std::current_exception();
  }
}

void throw_with_inputs_changed(const OpError& error) {
  throw_anew(error, error.what(), error.operation(), /*inputs_intact=*/false);
}

}  // namespace crossdevice
