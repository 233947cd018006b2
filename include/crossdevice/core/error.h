// SPDX-License-Identifier: Apache-2.0
/// The errors this library throws. TF counterparts: ValueError and tf.errors.*.
///
/// Choose a handler by what to do next: ValueError - fix the call, nothing was touched.
/// FailedPreconditionError - fix the state (wrong context, wrong order). UnimplementedError - take
/// another way. DeadlineExceededError, UnavailableError, AbortedError - the operation is over; see
/// inputs_intact(). InternalError - tell us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iosfwd>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

// Every destructor below is defined in the library: it anchors the class's type information there,
// so that a handler in one shared object catches what another one threw.

/// A wrong argument: says what was expected and what came. Thrown before anything is sent or
/// written.
class CROSSDEVICE_EXPORT ValueError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
  ~ValueError() override;
};

/// Who did not come, or who failed: a worker, or (worker-local) one of its replicas.
struct CROSSDEVICE_EXPORT RankInfo {
  int rank = -1;                 ///< worker rank; -1 where there is only this process
  int replica = -1;              ///< replica in this process; -1 where the whole worker is meant
  std::string host{};            ///< empty: unknown
  std::int64_t pid = 0;          ///< 0: unknown
  std::string last_operation{};  ///< "broadcast #1203"; empty: none
};
/// "rank 3 (host b, pid 4711), last seen in broadcast #1203" or
/// "replica 1, last seen in all_reduce #2"; "unknown rank" where neither is known.
CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const RankInfo& rank);
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const RankInfo& rank);

/// One operation as errors and logs name it.
struct CROSSDEVICE_EXPORT OperationRecord {
  std::string_view kind = "";  ///< "batch_reduce"; refers to a string literal
  std::uint64_t sequence = 0;  ///< counts the operations of one ops object, from 1
  std::size_t num_values = 0;
  std::size_t size_bytes = 0;  ///< of one replica's values
};
/// "batch_reduce #1204 (161 values, 97.5 MiB)"; "unknown operation" where kind is empty.
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const OperationRecord& operation);

/// TF's canonical status codes, as far as this library uses them.
enum class StatusCode : std::uint8_t {
  CANCELLED,
  DEADLINE_EXCEEDED,
  FAILED_PRECONDITION,
  ABORTED,
  UNAVAILABLE,
  UNIMPLEMENTED,
  RESOURCE_EXHAUSTED,
  INTERNAL,
};
[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(StatusCode code);

/// What an OpError knows besides its text.
struct CROSSDEVICE_EXPORT OpErrorDetails {
  OperationRecord operation{};
  std::vector<RankInfo> culprits{};
  bool inputs_intact = true;  ///< false: buffers of an in-place operation are unspecified
};

/// A failure at run time. The kinds below say which.
class CROSSDEVICE_EXPORT OpError : public std::runtime_error {
 public:
  OpError(StatusCode code, const std::string& message, OpErrorDetails details = {});
  ~OpError() override;

  [[nodiscard]] StatusCode code() const { return code_; }
  [[nodiscard]] const OperationRecord& operation() const { return details_->operation; }
  /// The ranks or replicas that did not come; empty when nobody is to blame.
  [[nodiscard]] std::span<const RankInfo> culprits() const { return details_->culprits; }
  [[nodiscard]] bool inputs_intact() const { return details_->inputs_intact; }

 private:
  StatusCode code_;
  std::shared_ptr<const OpErrorDetails> details_;  // shared: copying an exception must not throw
};

namespace detail {
/// Binds a StatusCode to a type, so that each kind below is one line.
template <StatusCode Code>
class CROSSDEVICE_EXPORT OpErrorOf : public OpError {
 public:
  explicit OpErrorOf(const std::string& message, OpErrorDetails details = {})
      : OpError(Code, message, std::move(details)) {}
};
}  // namespace detail

class CROSSDEVICE_EXPORT CancelledError : public detail::OpErrorOf<StatusCode::CANCELLED> {
 public:
  using OpErrorOf::OpErrorOf;
  ~CancelledError() override;
};
class CROSSDEVICE_EXPORT DeadlineExceededError
    : public detail::OpErrorOf<StatusCode::DEADLINE_EXCEEDED> {
 public:
  using OpErrorOf::OpErrorOf;
  ~DeadlineExceededError() override;
};
class CROSSDEVICE_EXPORT FailedPreconditionError
    : public detail::OpErrorOf<StatusCode::FAILED_PRECONDITION> {
 public:
  using OpErrorOf::OpErrorOf;
  ~FailedPreconditionError() override;
};
class CROSSDEVICE_EXPORT AbortedError : public detail::OpErrorOf<StatusCode::ABORTED> {
 public:
  using OpErrorOf::OpErrorOf;
  ~AbortedError() override;
};
class CROSSDEVICE_EXPORT UnavailableError : public detail::OpErrorOf<StatusCode::UNAVAILABLE> {
 public:
  using OpErrorOf::OpErrorOf;
  ~UnavailableError() override;
};
class CROSSDEVICE_EXPORT UnimplementedError : public detail::OpErrorOf<StatusCode::UNIMPLEMENTED> {
 public:
  using OpErrorOf::OpErrorOf;
  ~UnimplementedError() override;
};
class CROSSDEVICE_EXPORT ResourceExhaustedError
    : public detail::OpErrorOf<StatusCode::RESOURCE_EXHAUSTED> {
 public:
  using OpErrorOf::OpErrorOf;
  ~ResourceExhaustedError() override;
};
class CROSSDEVICE_EXPORT InternalError : public detail::OpErrorOf<StatusCode::INTERNAL> {
 public:
  using OpErrorOf::OpErrorOf;
  ~InternalError() override;
};

/// Throws the kind of error that `code` names: for codes that came from another worker.
[[noreturn]] CROSSDEVICE_EXPORT void throw_op_error(StatusCode code, const std::string& message,
                                                    OpErrorDetails details = {});
/// Throws `error` with another text, operation and fate of the inputs; its kind, and whom it blames, stay.
[[noreturn]] CROSSDEVICE_EXPORT void throw_anew(const OpError& error, const std::string& message,
                                                const OperationRecord& operation,
                                                bool inputs_intact);
/// The same, not thrown yet.
[[nodiscard]] CROSSDEVICE_EXPORT std::exception_ptr said_anew(const OpError& error,
                                                              const std::string& message,
                                                              const OperationRecord& operation,
                                                              bool inputs_intact) noexcept;
/// Throws what `error` says, with inputs_intact() false: where an earlier part of the same call has been written already.
[[noreturn]] CROSSDEVICE_EXPORT void throw_with_inputs_changed(const OpError& error);

}  // namespace crossdevice
