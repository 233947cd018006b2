// SPDX-License-Identifier: Apache-2.0
/// Messages of the library: a severity, a text, and a sink that the program may replace.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// CROSSDEVICE_LOG_LEVEL, or CROSSDEVICE_LOG, picks the lowest one that is written (core/environment.h).
enum class LogSeverity : std::uint8_t { INFO, WARNING, FAILURE };

[[nodiscard]] CROSSDEVICE_EXPORT std::string_view to_string(LogSeverity severity);

using LogSink = std::function<void(LogSeverity, std::string_view message)>;

/// Replaces where messages go (default: one line "crossdevice: warning: ..." on std::clog); an
/// empty sink restores the default. The sink gets every severity that the level admits, from any
/// thread, one call at a time; what it throws is dropped. What a sink itself logs goes to
/// std::clog. A sink must not wait for another thread that may log.
///
/// Order    when this returns, the previous sink no longer runs (unless the caller is that sink).
/// fork()   a child has its parent's sink, unless that ran on another thread at that moment: then messages in the child go
///          to standard error, whatever is set.
/// Threads  any.
CROSSDEVICE_EXPORT void set_log_sink(LogSink sink);

/// Writes a message. Never throws. A CROSSDEVICE_LOG_LEVEL that cannot be read counts as its
/// default.
///
/// Threads  any.
CROSSDEVICE_EXPORT void log(LogSeverity severity, std::string_view message) noexcept;

/// Writes a message the first time `key` is seen in this process. Keys are kept until it ends, so
/// they must be few.
///
/// Threads  any.
CROSSDEVICE_EXPORT void log_once(std::string_view key, LogSeverity severity,
                                 std::string_view message) noexcept;

}  // namespace crossdevice
