// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/full_name.h"

#include <new>

#include <fmt/format.h>

namespace crossdevice::detail {

std::string with_full_name(std::string_view text, const OperationRecord& operation,
                           std::optional<double> timeout_seconds) {
  const std::string name = fmt::format("{} #{}", operation.kind, operation.sequence);
  if (operation.kind.empty() || !text.starts_with(name)) return std::string(text);
  std::string_view rest = text.substr(name.size());
  if (!rest.starts_with(' ') && !rest.starts_with(':')) return std::string(text);
  std::string full =
      operation.num_values > 0 && !rest.starts_with(" (") ? to_string(operation) : name;
  constexpr std::string_view kTimedOut = " timed out: ";
  if (timeout_seconds.has_value() && rest.starts_with(kTimedOut)) {
    full += fmt::format(" timed out after {:.3g} s: ", *timeout_seconds);
    rest.remove_prefix(kTimedOut.size());
  }
  return full.append(rest);
}

std::exception_ptr error_of(const std::exception_ptr& error, const OperationRecord& operation,
                            std::optional<double> timeout_seconds,
                            const InputsFate& fate) noexcept {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const OpError& known) {
      if (!known.operation().kind.empty()) return error;
      return said_anew(known, with_full_name(known.what(), operation, timeout_seconds), operation,
                       known.inputs_intact() && !fate.has_part_written);
    } catch (const std::bad_alloc&) {
      return std::make_exception_ptr(ResourceExhaustedError(
          to_string(operation) + ": this process has no memory for it",
          {.operation = operation,
           .culprits = {},
           .inputs_intact = !fate.may_be_written && !fate.has_part_written}));
    }
  } catch (...) {  // the very error, or that there is no memory
    return error;
  }
}

}  // namespace crossdevice::detail
