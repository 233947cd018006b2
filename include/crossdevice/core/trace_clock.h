// SPDX-License-Identifier: Apache-2.0
/// Whose clock a trace's times are by, and what it is worth elsewhere: for those who bring the timelines of several machines together.
#pragma once

#include <cstdint>
#include <string>

#include "crossdevice/core/export.h"

namespace crossdevice::detail {

/// CLOCK_MONOTONIC, which a trace's times are by.
[[nodiscard]] CROSSDEVICE_EXPORT std::int64_t trace_clock_ns() noexcept;
/// Equal for processes whose clock is one: on one machine since it was started, in one time namespace. Empty where the system does not say.
[[nodiscard]] CROSSDEVICE_EXPORT const std::string& trace_clock_id();
/// Whether this process writes a trace.
[[nodiscard]] CROSSDEVICE_EXPORT bool is_trace_written() noexcept;

/// How this process's clock stood to another one.
struct ClockOffset {
  std::string clock;           ///< the other's trace_clock_id()
  std::int64_t at_ns = 0;      ///< when, by this one
  std::int64_t to_add_ns = 0;  ///< to a time of this one, for the other's
  std::int64_t within_ns = 0;  ///< it is wrong by so much at most
};
/// Puts it into the trace, if there is one.
///
/// Threads  any.
CROSSDEVICE_EXPORT void note_clock_offset(const ClockOffset& offset);

}  // namespace crossdevice::detail
