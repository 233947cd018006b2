// SPDX-License-Identifier: Apache-2.0
#include "chaos/report.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace crossdevice::chaos {
namespace {

constexpr char kSeparator = '\t';
constexpr std::array<std::string_view, 9> kNames = {"begin", "done",  "fail",   "wrong", "member",
                                                    "await", "fault", "effect", "end"};

std::string without_separators(std::string text) {
  for (char& each : text) {
    if (each == kSeparator || each == '\n' || each == '\r') each = ' ';
  }
  constexpr std::size_t kMaxText = 1500;  // a line is written at once, which pipes do up to 4 KiB
  if (text.size() > kMaxText) text.resize(kMaxText);
  return text;
}

template <class T>
bool read(std::string_view text, T& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool read(std::string_view text, std::vector<int>& numbers) {
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    int number = 0;
    if (!read(text.substr(0, comma), number)) return false;
    numbers.push_back(number);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}

}  // namespace

std::string to_line(const Event& event) {
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", kNames[static_cast<std::size_t>(event.kind)],
                     event.time_us, without_separators(event.step), without_separators(event.code),
                     event.inputs_intact ? 1 : 0, fmt::join(event.ranks, ","),
                     fmt::join(event.counts, ","), without_separators(event.text));
}

std::optional<Event> parse_line(std::string_view line) {
  std::array<std::string_view, 8> fields;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::size_t end = line.find(kSeparator);
    if ((end == std::string_view::npos) != (i + 1 == fields.size())) return std::nullopt;
    fields[i] = line.substr(0, end);
    line.remove_prefix(std::min(fields[i].size() + 1, line.size()));
  }
  const auto* const name = std::find(kNames.begin(), kNames.end(), fields[0]);
  if (name == kNames.end()) return std::nullopt;
  Event event;
  event.kind = static_cast<EventKind>(name - kNames.begin());
  event.step = fields[2];
  event.code = fields[3];
  event.inputs_intact = fields[4] == "1";
  event.text = fields[7];
  if (!read(fields[1], event.time_us) || !read(fields[5], event.ranks) ||
      !read(fields[6], event.counts)) {
    return std::nullopt;
  }
  return event;
}

}  // namespace crossdevice::chaos
