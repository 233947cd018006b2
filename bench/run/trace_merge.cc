// SPDX-License-Identifier: Apache-2.0
#include "run/trace_merge.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace crossdevice::run {
namespace {

constexpr std::string_view kPartEnd = ".part";
constexpr double kNanosecondsPerMicrosecond = 1000;

/// What a part says about its machine.
struct Clock {
  std::string boot_id{};
  std::int64_t monotonic_ns = 0;
  std::int64_t realtime_ns = 0;
};

/// "trace.json.RANK.PID.part": its rank. Nothing: it is none.
std::optional<int> rank_of(const std::string& file_name, const std::string& stem) {
  if (!file_name.starts_with(stem + ".") || !file_name.ends_with(kPartEnd)) return std::nullopt;
  int rank = 0;
  const char* const begin = file_name.data() + stem.size() + 1;
  const auto [end, error] = std::from_chars(begin, file_name.data() + file_name.size(), rank);
  if (error != std::errc() || *end != '.') return std::nullopt;
  return rank;
}

std::vector<std::pair<int, std::string>> ranked_parts(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  std::vector<std::pair<int, std::string>> parts;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::optional<int> rank =
        rank_of(entry.path().filename().string(), whole.filename().string());
    if (rank.has_value()) parts.emplace_back(*rank, entry.path().string());
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

/// The event of a line; null: it holds none.
nlohmann::json event_of(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.remove_suffix(1);
  if (line.size() < 2) return nullptr;  // the list's brackets
  nlohmann::json event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return event.is_object() ? event : nullptr;
}

std::optional<Clock> clock_of(const nlohmann::json& event) {
  if (event.value("name", "") != "crossdevice_clock") return std::nullopt;
  const nlohmann::json& arguments = event.at("args");
  return Clock{.boot_id = arguments.value("boot_id", ""),
               .monotonic_ns = arguments.value("monotonic_ns", std::int64_t{0}),
               .realtime_ns = arguments.value("realtime_ns", std::int64_t{0})};
}

/// What to add to times by `clock` so that they are times by `first`.
std::int64_t offset_ns(const Clock& clock, const Clock& first) {
  if (clock.boot_id == first.boot_id) return 0;
  return (clock.realtime_ns - clock.monotonic_ns) - (first.realtime_ns - first.monotonic_ns);
}

}  // namespace

std::string trace_part_pattern(const std::string& path) {
  return std::filesystem::absolute(path).string() + ".%r.%p" + std::string(kPartEnd);
}

std::vector<std::string> find_trace_parts(const std::string& path) {
  std::vector<std::string> parts;
  for (auto& [rank, part] : ranked_parts(path)) parts.push_back(std::move(part));
  return parts;
}

void merge_traces(const std::vector<std::string>& parts, std::ostream& into) {
  into << "[\n";
  bool is_first = true;
  std::optional<Clock> first_clock;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::ifstream file(parts[part]);
    if (!file) throw std::runtime_error("cannot read " + parts[part]);
    std::int64_t offset = 0;
    for (std::string line; std::getline(file, line);) {
      nlohmann::json event = event_of(line);
      if (event.is_null()) continue;
      if (const std::optional<Clock> clock = clock_of(event)) {
        if (!first_clock.has_value()) first_clock = clock;
        offset = offset_ns(*clock, *first_clock);
      }
      event["pid"] = part;
      if (offset != 0 && event.contains("ts")) {
        event["ts"] =
            event["ts"].get<double>() + static_cast<double>(offset) / kNanosecondsPerMicrosecond;
      }
      into << (is_first ? "" : ",\n")
           << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      is_first = false;
    }
  }
  into << "\n]\n";
}

JobTrace::JobTrace(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code error;
  for (const std::string& part : find_trace_parts(path_)) std::filesystem::remove(part, error);
}

std::vector<std::string> JobTrace::variables() const {
  if (path_.empty()) return {};
  return {"CROSSDEVICE_TRACE=" + trace_part_pattern(path_)};
}

void JobTrace::finish(int num_workers) const {
  if (path_.empty()) return;
  try {
    std::set<int> ranks;
    for (const auto& [rank, part] : ranked_parts(path_)) ranks.insert(rank);
    const std::vector<std::string> parts = find_trace_parts(path_);
    std::ofstream file(path_, std::ios::trunc);
    merge_traces(parts, file);
    file.close();
    if (!file) throw std::runtime_error("cannot write it");
    for (const std::string& part : parts) std::filesystem::remove(part);
    for (int rank = 0; rank < num_workers; ++rank) {
      if (ranks.contains(rank)) continue;
      fmt::print(stderr, "crossdevice-run: {}: rank {} has left nothing here\n", path_, rank);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "crossdevice-run: no timeline in {}: {}\n", path_, error.what());
  }
}

}  // namespace crossdevice::run
