// SPDX-License-Identifier: Apache-2.0
#include "run/host_list.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "support/program.h"

namespace crossdevice::run {
namespace {

/// A name goes to the remote shell as a word of its own: it must not look like an option, nor hold anything that a shell would read.
void check_name(std::string_view name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".-_:%@").find(c) != std::string_view::npos;
  });
  if (name.empty() || name.front() == '-' || name.front() == '@' || name.back() == '@' ||
      !is_plain) {
    throw programs::ArgumentError(fmt::format("expected a host's name or address, got '{}'", name));
  }
}

int parse_slots(std::string_view text) {
  int slots = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, slots);
  if (error != std::errc{} || stop != end || slots < 1 || slots > kMaxSlots) {
    throw programs::ArgumentError(
        fmt::format("expected from 1 to {} slots, got '{}'", kMaxSlots, text));
  }
  return slots;
}

Host parse_host(std::string_view text) {
  Host host;
  std::string_view slots;
  bool has_slots = false;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    const std::string_view rest = close == std::string_view::npos ? "" : text.substr(close + 1);
    if (close == std::string_view::npos || (!rest.empty() && rest.front() != ':')) {
      throw programs::ArgumentError(fmt::format("expected [ADDRESS]:SLOTS, got '{}'", text));
    }
    host.name = text.substr(1, close - 1);
    has_slots = !rest.empty();
    if (has_slots) slots = rest.substr(1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    const std::size_t colon = text.find(':');
    host.name = text.substr(0, colon);
    slots = text.substr(colon + 1);
    has_slots = true;
  } else {
    host.name = text;
  }
  check_name(host.name);
  if (has_slots) host.slots = parse_slots(slots);
  return host;
}

Host parse_line(const std::string& host_text, std::istringstream& words) {
  Host host = parse_host(host_text);
  constexpr std::string_view kSlots = "slots=";
  for (std::string word; words >> word;) {
    if (!word.starts_with(kSlots)) {
      throw programs::ArgumentError(fmt::format("expected slots=K, got '{}'", word));
    }
    host.slots = parse_slots(std::string_view(word).substr(kSlots.size()));
  }
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  hosts.reserve(static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1);
  try {
    for (;;) {
      const std::size_t comma = text.find(',');
      hosts.push_back(parse_host(text.substr(0, comma)));
      if (comma == std::string_view::npos) return hosts;
      text.remove_prefix(comma + 1);
    }
  } catch (const programs::ArgumentError& error) {
    throw programs::ArgumentError(fmt::format("--hosts: {}", error.what()));
  }
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw programs::ArgumentError(fmt::format("--hostfile: cannot read {}", path));
  std::vector<Host> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (!(words >> host)) continue;
    try {
      hosts.push_back(parse_line(host, words));
    } catch (const programs::ArgumentError& error) {
      throw programs::ArgumentError(
          fmt::format("--hostfile: {} line {}: {}", path, number, error.what()));
    }
  }
  if (hosts.empty())
    throw programs::ArgumentError(fmt::format("--hostfile: {} names no host", path));
  return hosts;
}

}  // namespace crossdevice::run
