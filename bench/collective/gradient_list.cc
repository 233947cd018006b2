// SPDX-License-Identifier: Apache-2.0
/// Parses gradient lists line by line.
#include "collective/gradient_list.h"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>

#include <fmt/core.h>

#include "crossdevice/core/error.h"

#include "support/program.h"

namespace crossdevice::bench {

namespace {

constexpr std::string_view kHeader = "name,shape,numel";

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

/// The pieces of `text` between `separator`s; none for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
    if (text.empty()) pieces.push_back(text);
  }
  return pieces;
}

}  // namespace

std::vector<Gradient> parse_gradient_list(std::istream& in, std::string_view source) {
  std::size_t line_number = 0;
  const auto refuse = [&](const std::string& why) {
    throw programs::ArgumentError(fmt::format("{}, line {}: {}", source, line_number, why));
  };
  std::vector<Gradient> gradients;
  std::string line;
  while (std::getline(in, line)) {
    ++line_number;
    if (line.ends_with('\r')) line.pop_back();
    if (line_number == 1) {
      if (line != kHeader)
        refuse(fmt::format("expected the header '{}', found '{}'", kHeader, line));
      continue;
    }
    if (line.empty()) continue;
    const std::vector<std::string_view> fields = split(line, ',');
    if (fields.size() != 3) refuse(fmt::format("expected 3 fields, found {}", fields.size()));
    std::vector<std::int64_t> dims;
    for (const std::string_view dim : split(fields[1], 'x')) {
      const std::optional<std::int64_t> value = parse_count(dim);
      if (!value) refuse(fmt::format("'{}' is not a shape such as 64x3x7x7", fields[1]));
      dims.push_back(*value);
    }
    const std::optional<std::int64_t> numel = parse_count(fields[2]);
    try {
      const Shape shape{std::span<const std::int64_t>(dims)};
      if (!numel || shape.num_elements() != *numel) {
        refuse(fmt::format("numel is {}, but the shape {} has {} elements", fields[2], fields[1],
                           shape.num_elements()));
      }
      gradients.push_back({.name = std::string(fields[0]), .shape = shape});
    } catch (const ValueError& error) {
      refuse(error.what());
    }
  }
  if (gradients.empty()) {
    throw programs::ArgumentError(fmt::format("{} holds no gradients", source));
  }
  return gradients;
}

std::vector<Gradient> read_gradient_list(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw programs::ArgumentError(fmt::format("cannot open {}", path.string()));
  return parse_gradient_list(in, path.string());
}

}  // namespace crossdevice::bench
