// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/node_list.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "comm/detail/launcher_variables.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kMaxEntries = 100'000;
constexpr std::size_t kMaxDigits = 9;
constexpr std::size_t kMaxHostNameBytes = 255;

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

/// The text up to `end`, which is dropped; all of it where there is no `end`.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t position = std::min(text.find(end), text.size());
  const std::string_view head = text.substr(0, position);
  text.remove_prefix(std::min(position + 1, text.size()));
  return head;
}

/// "3-4,06": 3 4 06. Nothing where it is malformed or too long.
std::optional<std::vector<std::string>> expand_brackets(std::string_view text) {
  std::vector<std::string> numbers;
  if (text.empty() || text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    std::string_view range = take_until(text, ',');
    const bool is_range = range.find('-') != std::string_view::npos;
    const std::string_view low_text = take_until(range, '-');
    const std::string_view high_text = is_range ? range : low_text;
    const std::optional<std::uint64_t> low = parse_digits(low_text);
    const std::optional<std::uint64_t> high = parse_digits(high_text);
    if (!low.has_value() || !high.has_value() || low_text.size() > kMaxDigits ||
        high_text.size() > kMaxDigits || *low > *high ||
        *high - *low >= kMaxEntries - numbers.size()) {
      return std::nullopt;
    }
    for (std::uint64_t number = *low; number <= *high; ++number) {
      // NOLINTNEXTLINE(performance-inefficient-vector-operation): grows across the ranges
      numbers.push_back(fmt::format("{:0{}}", number, low_text.size()));
    }
  }
  return numbers;
}

/// Takes one name with its brackets, up to a comma outside them, from the front of `text`.
bool expand_item(std::string_view& text, std::vector<std::string>& hosts) {
  std::vector<std::string> names{""};
  while (!text.empty() && text.front() != ',') {
    std::vector<std::string> endings;
    if (text.front() == '[') {
      const std::size_t close = text.find(']');
      if (close == std::string_view::npos) return false;
      std::optional<std::vector<std::string>> numbers = expand_brackets(text.substr(1, close - 1));
      if (!numbers.has_value()) return false;
      endings = *std::move(numbers);
      text.remove_prefix(close + 1);
    } else {
      std::size_t size = 0;
      while (size < text.size() && is_host_character(text[size])) ++size;
      if (size == 0) return false;
      endings.emplace_back(text.substr(0, size));
      text.remove_prefix(size);
    }
    if (names.size() * endings.size() > kMaxEntries) return false;
    std::vector<std::string> longer;
    longer.reserve(names.size() * endings.size());
    for (const std::string& name : names) {
      for (const std::string& ending : endings) {
        if (name.size() + ending.size() > kMaxHostNameBytes) return false;
        longer.push_back(name + ending);
      }
    }
    names = std::move(longer);
  }
  if (names.front().empty() || hosts.size() + names.size() > kMaxEntries) return false;
  hosts.insert(hosts.end(), names.begin(), names.end());
  return true;
}

}  // namespace

std::optional<std::vector<std::string>> expand_node_list(std::string_view text) {
  std::vector<std::string> hosts;
  if (!expand_item(text, hosts)) return std::nullopt;
  while (!text.empty()) {
    text.remove_prefix(1);  // the comma
    if (!expand_item(text, hosts)) return std::nullopt;
  }
  return hosts;
}

std::optional<std::vector<int>> expand_task_counts(std::string_view text) {
  std::vector<int> counts;
  if (text.empty() || text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    std::string_view item = take_until(text, ',');
    const bool is_repeated = item.ends_with(')');
    if (is_repeated) item.remove_suffix(1);
    const std::string_view count_text = is_repeated ? take_until(item, '(') : item;
    if (is_repeated) {
      if (!item.starts_with('x')) return std::nullopt;
      item.remove_prefix(1);
    }
    const std::optional<std::uint64_t> count = parse_digits(count_text);
    const std::optional<std::uint64_t> times =
        is_repeated ? parse_digits(item) : std::optional<std::uint64_t>(1);
    if (!count.has_value() || *count > static_cast<std::uint64_t>(kMaxWorkers) ||
        !times.has_value() || *times < 1 || *times > kMaxEntries - counts.size()) {
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), static_cast<int>(*count));
  }
  return counts;
}

}  // namespace crossdevice::detail
