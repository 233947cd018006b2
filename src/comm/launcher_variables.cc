// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/launcher_variables.h"

#include <charconv>

#include <fmt/format.h>

namespace crossdevice::detail {
namespace {

constexpr std::uint64_t kFirstPort = 61440;
constexpr std::uint64_t kNumPorts = 4096;
constexpr std::size_t kMaxShownBytes = 200;

}  // namespace

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::uint16_t port_of_job(std::uint64_t job) {
  return static_cast<std::uint16_t>(kFirstPort + job % kNumPorts);
}

std::uint64_t number_of_job(std::string_view name) {
  if (name.empty()) return 0;
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash ^ (hash >> 32U);
}

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size() < kMaxShownBytes ? text.size() : kMaxShownBytes + 3);
  for (const char c : text.substr(0, kMaxShownBytes)) {
    if (c >= ' ' && c <= '~') {
      shown.push_back(c);
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxShownBytes) shown += "...";
  return shown;
}

ValueError LauncherVariables::error(const char* name, std::string_view expected,
                                    std::string_view got) const {
  return ValueError(
      fmt::format("{}: {}: expected {}, got '{}'", launcher_, name, expected, printable(got)));
}

std::optional<std::string> LauncherVariables::find(const char* name) const {
  std::optional<std::string> text = source_(name);
  if (text.has_value() && text->empty()) text.reset();
  return text;
}

std::string LauncherVariables::require(const char* name) const {
  std::optional<std::string> text = find(name);
  if (!text.has_value()) throw ValueError(fmt::format("{}: {} is not set", launcher_, name));
  return *std::move(text);
}

std::optional<int> LauncherVariables::find_number(const char* name, int low, int high) const {
  const std::optional<std::string> text = find(name);
  if (!text.has_value()) return std::nullopt;
  const std::optional<std::uint64_t> number = parse_digits(*text);
  if (!number.has_value() || *number < static_cast<std::uint64_t>(low) ||
      *number > static_cast<std::uint64_t>(high)) {
    throw error(name, fmt::format("a whole number from {} to {}", low, high), *text);
  }
  return static_cast<int>(*number);
}

int LauncherVariables::require_number(const char* name, int low, int high) const {
  (void)require(name);
  return find_number(name, low, high).value_or(low);
}

std::optional<LauncherVariables::Place> LauncherVariables::find_place(const char* rank_name,
                                                                      const char* size_name) const {
  const std::optional<std::string> rank = find(rank_name);
  const std::optional<std::string> size = find(size_name);
  if (!rank.has_value() && !size.has_value()) return std::nullopt;
  if (!rank.has_value() || !size.has_value()) {
    const char* const there = rank.has_value() ? rank_name : size_name;
    throw ValueError(fmt::format("{}: {} is '{}', but {} is not set", launcher_, there,
                                 printable(rank.has_value() ? *rank : *size),
                                 rank.has_value() ? size_name : rank_name));
  }
  return require_place(rank_name, size_name);
}

LauncherVariables::Place LauncherVariables::require_place(const char* rank_name,
                                                          const char* size_name) const {
  const int size = require_number(size_name, 1, kMaxWorkers);
  const int rank = require_number(rank_name, 0, kMaxWorkers);
  if (rank >= size) {
    throw ValueError(fmt::format("{}: {} is {}, which is not below {} = {}", launcher_, rank_name,
                                 rank, size_name, size));
  }
  return {rank, size};
}

}  // namespace crossdevice::detail
