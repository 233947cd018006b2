// SPDX-License-Identifier: Apache-2.0
// Reads and checks the environment variables.
#include "crossdevice/core/environment.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/usable_cores.h"

namespace crossdevice {
namespace {

constexpr int kMaxCount = 4096;  // of devices, of threads

using Lookup = const char* (*)(const char* name);

/// The variable's text; nothing where it is unset or empty.
std::optional<std::string_view> text_of(Lookup lookup, const char* name) {
  const char* value = lookup(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

[[noreturn]] void throw_expected(const char* name, std::string_view expected,
                                 std::string_view got) {
  throw ValueError(fmt::format("{}: expected {}, got '{}'", name, expected, got));
}

/// All of `text` as a number, in the same way under every locale.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

int parse_count(Lookup lookup, const char* name, int value_if_unset) {
  const std::optional<std::string_view> text = text_of(lookup, name);
  if (!text.has_value()) return value_if_unset;
  const std::optional<int> count = number_of<int>(*text);
  if (!count.has_value() || *count < 1 || *count > kMaxCount) {
    throw_expected(name, fmt::format("a whole number from 1 to {}", kMaxCount), *text);
  }
  return *count;
}

std::optional<double> parse_timeout(Lookup lookup, const char* name) {
  const std::optional<std::string_view> text = text_of(lookup, name);
  if (!text.has_value()) return std::nullopt;
  const std::optional<double> seconds = number_of<double>(*text);
  if (!seconds.has_value() || !std::isfinite(*seconds) || *seconds < 0) {
    throw_expected(name, "a number of seconds, at least 0", *text);
  }
  if (*seconds == 0) return std::nullopt;
  return seconds;
}

bool parse_switch(Lookup lookup, const char* name, bool value_if_unset) {
  const std::optional<std::string_view> text = text_of(lookup, name);
  if (!text.has_value()) return value_if_unset;
  if (*text != "0" && *text != "1") throw_expected(name, "0 or 1", *text);
  return *text == "1";
}

std::optional<LogSeverity> parse_log_level(Lookup lookup, const char* name,
                                           std::optional<LogSeverity> value_if_unset) {
  const std::optional<std::string_view> text = text_of(lookup, name);
  if (!text.has_value()) return value_if_unset;
  if (*text == "none") return std::nullopt;
  for (const LogSeverity severity :
       {LogSeverity::INFO, LogSeverity::WARNING, LogSeverity::FAILURE}) {
    if (*text == to_string(severity)) return severity;
  }
  throw_expected(name, "info, warning, failure or none", *text);
}

std::string parse_choice(Lookup lookup, const char* name, std::array<std::string_view, 2> choices,
                         std::string_view value_if_unset) {
  const std::optional<std::string_view> text = text_of(lookup, name);
  if (!text.has_value()) return std::string(value_if_unset);
  if (*text != choices[0] && *text != choices[1]) {
    throw_expected(name, std::string(choices[0]) + " or " + std::string(choices[1]), *text);
  }
  return std::string(*text);
}

int default_num_threads() {
  const std::size_t num_cores = detail::usable_cores().size();
  const std::size_t count = num_cores > 0 ? num_cores : std::thread::hardware_concurrency();
  return static_cast<int>(std::clamp<std::size_t>(count, 1, kMaxCount));
}

}  // namespace

Environment parse_environment(const char* (*lookup)(const char* name)) {
  Environment result;
  result.cpu_devices = parse_count(lookup, "CROSSDEVICE_CPU_DEVICES", result.cpu_devices);
  result.logical_gpus = parse_count(lookup, "CROSSDEVICE_LOGICAL_GPUS", result.logical_gpus);
  result.num_threads = parse_count(lookup, "CROSSDEVICE_NUM_THREADS", default_num_threads());
  result.default_timeout_seconds = parse_timeout(lookup, "CROSSDEVICE_DEFAULT_TIMEOUT");
  result.strict = parse_switch(lookup, "CROSSDEVICE_STRICT", result.strict);
  result.counters = parse_switch(lookup, "CROSSDEVICE_COUNTERS", result.counters);
  result.tuning_file = text_of(lookup, "CROSSDEVICE_TUNING_FILE").value_or("");
  result.transport = parse_choice(lookup, "CROSSDEVICE_TRANSPORT", {"tcp", "ucx"}, "");
  result.tls = parse_switch(lookup, "CROSSDEVICE_TLS", result.tls);
  result.nccl_library = text_of(lookup, "CROSSDEVICE_NCCL_LIBRARY").value_or("");
  result.launch_order =
      parse_choice(lookup, "CROSSDEVICE_LAUNCH_ORDER", {"agreed", "program"}, result.launch_order);
  result.flight_record = text_of(lookup, "CROSSDEVICE_FLIGHT_RECORD").value_or("");
  result.trace = text_of(lookup, "CROSSDEVICE_TRACE").value_or("");
  const bool has_level = text_of(lookup, "CROSSDEVICE_LOG_LEVEL").has_value();
  result.log_level = parse_log_level(
      lookup, has_level ? "CROSSDEVICE_LOG_LEVEL" : "CROSSDEVICE_LOG", result.log_level);
  return result;
}

namespace {

// Never destroyed: threads and static objects may still ask while the process ends. Without a lock, which a child of fork() would wait for for ever if
// it was held meanwhile: whoever asks first may read the variables several times over, and one result counts.
constinit std::atomic<const Environment*> known{nullptr};

[[gnu::noinline]] const Environment& read_environment() {
  auto made = std::make_unique<const Environment>(
      // NOLINTNEXTLINE(concurrency-mt-unsafe): we never write the environment
      parse_environment([](const char* name) -> const char* { return std::getenv(name); }));
  const Environment* first = nullptr;
  if (known.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
    return *made.release();
  }
  return *first;
}

}  // namespace

const Environment& environment() {
  const Environment* const found = known.load(std::memory_order_acquire);
  return found != nullptr ? *found : read_environment();
}

EnvironmentSource process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the contract asks callers to leave the environment alone
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

}  // namespace crossdevice
