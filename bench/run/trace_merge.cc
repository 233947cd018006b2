// SPDX-License-Identifier: Apache-2.0
#include "run/trace_merge.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "run/system_error.h"
#include "run/trace_clocks.h"

namespace crossdevice::run {
namespace {

constexpr std::string_view kPartEnd = ".part";
constexpr double kNanosecondsPerMicrosecond = 1000;
constexpr double kMostNs = 1e17;  // no clock of a machine shows more

/// Whether a process that lives has the file open for its timeline.
bool is_written(const std::string& part) {
  const int file = ::open(part.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_locked = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  (void)::close(file);
  return is_locked;
}

/// That the parts can be written beside it, and then itself. Leaves it as it is, or is not: another job may be about to write it.
///
/// Errors   std::runtime_error.
void require_writable(const std::string& path) {
  const std::string what = "write a timeline to " + path;
  const int whole = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);  // waits for no reader
  if (whole < 0 && errno != ENOENT) throw system_failure(what);
  if (whole >= 0) (void)::close(whole);
  constexpr mode_t kMode = 0666;
  const std::string beside = fmt::format("{}.{}.try", path, ::getpid());
  const int part = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kMode);
  if (part < 0) throw system_failure(what);
  (void)::close(part);
  (void)::unlink(beside.c_str());
}

/// The event of a line; null: it holds none.
nlohmann::json event_of(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.remove_suffix(1);
  if (line.size() < 2) return nullptr;  // the list's brackets
  nlohmann::json event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return event.is_object() ? event : nullptr;
}

/// Calls `use` for each whole event of a part whose line has `text` in it.
template <class Use>
void for_events(const std::string& part, std::string_view text, const Use& use) {
  std::ifstream file(part);
  if (!file) throw std::runtime_error("cannot read " + part);
  for (std::string line; std::getline(file, line);) {
    if (line.find(text) == std::string::npos) continue;
    if (nlohmann::json event = event_of(line); !event.is_null()) use(event);
  }
}

/// Takes in what a part says of clocks. The name of its own one; empty: it does not say.
std::string read_clocks(const std::string& part, TraceClocks& clocks) {
  std::string own;
  for_events(part, "crossdevice_clock", [&](const nlohmann::json& event) {
    if (event.value("ph", "") != "M") return;
    const std::string name = event.value("name", "");
    if (name != "crossdevice_clock" && name != "crossdevice_clock_offset") return;
    const nlohmann::json& arguments = event.at("args");
    const auto number = [&](const char* what) { return arguments.value(what, std::int64_t{0}); };
    if (name == "crossdevice_clock") {
      own = arguments.value("clock", "");
      clocks.note_system_time(own, number("monotonic_ns"), number("realtime_ns"));
    } else {
      clocks.note_offset(own, arguments.value("clock", ""), number("at_ns"), number("to_add_ns"),
                         number("within_ns"));
    }
  });
  return own;
}

/// Which of the things that are said of a process as a whole; null: `event` says none. The last one counts: a worker is named when its file begins, and anew
/// when it has joined, which tells its host.
const char* said_of_process(const nlohmann::json& event) {
  const auto has = [&event](const char* key, const char* value) {
    const auto found = event.find(key);
    return found != event.end() && *found == value;
  };
  if (!has("ph", "M")) return nullptr;
  for (const char* const name : {"process_name", "process_sort_index"}) {
    if (has("name", name)) return name;
  }
  return nullptr;
}

/// merge_traces() into a file, over what is there.
std::vector<std::size_t> write_merged(const std::vector<std::string>& parts,
                                      const std::string& path) {
  errno = 0;
  std::ofstream file(path, std::ios::trunc);
  if (!file) throw system_failure("write " + path);
  std::vector<std::size_t> num_events = merge_traces(parts, file);
  file.close();
  // A stream does not say why; what it called last that failed does.
  if (!file) throw system_failure("write " + path, errno != 0 ? errno : EIO);
  return num_events;
}

}  // namespace

std::string trace_part_pattern(const std::string& path) {
  return std::filesystem::absolute(path).string() + ".%r.%p" + std::string(kPartEnd);
}

std::optional<int> rank_of_trace_part(const std::string& file_name, const std::string& stem) {
  if (!file_name.starts_with(stem + ".") || !file_name.ends_with(kPartEnd)) return std::nullopt;
  int rank = 0;
  const char* const begin = file_name.data() + stem.size() + 1;
  const auto [end, error] = std::from_chars(begin, file_name.data() + file_name.size(), rank);
  if (error != std::errc() || *end != '.') return std::nullopt;
  return rank;
}

std::vector<std::pair<int, std::string>> ranked_trace_parts(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::filesystem::path folder = whole.has_parent_path() ? whole.parent_path() : ".";
  std::vector<std::pair<int, std::string>> parts;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::optional<int> rank =
        rank_of_trace_part(entry.path().filename().string(), whole.filename().string());
    if (rank.has_value()) parts.emplace_back(*rank, entry.path().string());
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> find_trace_parts(const std::string& path) {
  std::vector<std::string> parts;
  for (auto& [rank, part] : ranked_trace_parts(path)) parts.push_back(std::move(part));
  return parts;
}

std::vector<std::size_t> merge_traces(const std::vector<std::string>& parts, std::ostream& into) {
  std::vector<std::size_t> num_events(parts.size());
  TraceClocks clocks;
  std::vector<std::string> clock_of;
  clock_of.reserve(parts.size());
  for (const std::string& part : parts) clock_of.push_back(read_clocks(part, clocks));
  // Of the first part that has one: of a worker that was killed early there may be none.
  const auto first =
      std::ranges::find_if(clock_of, [](const std::string& each) { return !each.empty(); });
  clocks.settle(first == clock_of.end() ? "" : *first);
  into << "[\n";
  bool is_first = true;
  const auto put = [&](const nlohmann::json& event) {
    into << (is_first ? "" : ",\n")
         << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    is_first = false;
  };
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::map<std::string, nlohmann::json> of_process;
    for_events(parts[part], "", [&](nlohmann::json& event) {
      ++num_events[part];
      event["pid"] = part;
      if (const auto ts = event.find("ts"); ts != event.end() && ts->is_number()) {
        const double us = ts->get<double>();
        const double at_ns = std::clamp(us * kNanosecondsPerMicrosecond, -kMostNs, kMostNs);
        const std::int64_t offset_ns =
            clocks.to_add_ns(clock_of[part], static_cast<std::int64_t>(at_ns));
        *ts = us + static_cast<double>(offset_ns) / kNanosecondsPerMicrosecond;
      }
      if (const char* const what = said_of_process(event)) {
        of_process[what] = event;
      } else {
        put(event);
      }
    });
    for (const auto& [what, event] : of_process) put(event);
  }
  into << "\n]\n";
  return num_events;
}

void merge_trace_files(const std::vector<std::string>& parts, const std::string& path) {
  // Not over one that is there: where the name was forgotten, the first part stands in its place.
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    throw std::runtime_error(path + " is there already: the result comes first, and is a new file");
  }
  try {
    const std::vector<std::size_t> num_events = write_merged(parts, path);
    const auto empty = std::ranges::find(num_events, std::size_t{0});
    if (empty != num_events.end()) {
      const auto which = static_cast<std::size_t>(empty - num_events.begin());
      throw std::runtime_error(parts[which] + " is no timeline that a worker has written");
    }
  } catch (...) {
    std::filesystem::remove(path, error);
    throw;
  }
}

/// Another job that lives has these parts: they stay what they are.
JobTrace::JobTrace(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (std::ranges::any_of(find_trace_parts(path_), is_written)) {
    const std::string taken = path_;
    path_ += fmt::format(".{}", ::getpid());
    fmt::print(stderr, "crossdevice-run: another job writes to {}: this one's timeline is {}\n",
               taken, path_);
  }
  require_writable(path_);
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
    for (const auto& [rank, part] : ranked_trace_parts(path_)) ranks.insert(rank);
    const std::vector<std::string> parts = find_trace_parts(path_);
    (void)write_merged(parts, path_);
    for (const std::string& part : parts) {
      std::error_code error;
      if (std::filesystem::remove(part, error) || !error) continue;
      fmt::print(stderr, "crossdevice-run: {} is complete; its part {} cannot be removed: {}\n",
                 path_, part, error.message());
    }
    for (int rank = 0; rank < num_workers; ++rank) {
      if (ranks.contains(rank)) continue;
      fmt::print(stderr, "crossdevice-run: {}: rank {} has left nothing here\n", path_, rank);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "crossdevice-run: no timeline in {}: {}\n", path_, error.what());
  }
}

}  // namespace crossdevice::run
