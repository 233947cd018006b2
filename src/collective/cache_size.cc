// SPDX-License-Identifier: Apache-2.0
/// Reads the kernel's description of the caches. (sysconf adds up cores that a virtual machine does not have.)
#include "collective/detail/cache_size.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "crossdevice/core/usable_cores.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kDefaultBytesPerCore = std::size_t{1} << 20;

struct Cache {
  std::size_t size_bytes = 0;
  std::set<int> cores;  // that share it
};

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// The number `text` starts with, which is then removed from it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// "32768K" or "1M".
std::size_t parse_size(std::string_view text) {
  const std::optional<int> number = take_number(text);
  if (!number) return 0;
  const auto value = static_cast<std::size_t>(*number);
  if (text == "K") return value << 10;
  if (text == "M") return value << 20;
  return value;
}

/// "0-7,64-71"; what is not understood ends the list.
std::set<int> parse_cores(std::string_view text) {
  std::set<int> cores;
  while (true) {
    const std::optional<int> first = take_number(text);
    if (!first) return cores;
    std::optional<int> last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
      if (!last) return cores;
    }
    for (int core = *first; core <= *last; ++core) cores.insert(core);
    if (!text.starts_with(',')) return cores;
    text.remove_prefix(1);
  }
}

Cache second_level_cache(const std::filesystem::path& directory, int core) {
  for (int index = 0;; ++index) {
    const std::filesystem::path files =
        directory / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
    const std::string level = first_line(files / "level");
    if (level.empty()) return {};
    if (level != "2") continue;
    return {.size_bytes = parse_size(first_line(files / "size")),
            .cores = parse_cores(first_line(files / "shared_cpu_list"))};
  }
}

}  // namespace

std::size_t second_level_cache_bytes(const std::filesystem::path& directory,
                                     const std::set<int>& cores) {
  std::size_t total = 0;
  std::set<int> counted;
  for (const int core : cores) {
    if (counted.contains(core)) continue;
    const Cache cache = second_level_cache(directory, core);
    total += cache.size_bytes;
    counted.insert(cache.cores.begin(), cache.cores.end());
  }
  return total;
}

std::size_t second_level_cache_bytes() {
  static const std::size_t bytes = [] {
    const std::set<int> cores = usable_cores();
    const std::size_t described = second_level_cache_bytes("/sys/devices/system/cpu", cores);
    return described != 0 ? described
                          : kDefaultBytesPerCore * std::max<std::size_t>(cores.size(), 1);
  }();
  return bytes;
}

}  // namespace crossdevice::detail
