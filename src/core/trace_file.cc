// SPDX-License-Identifier: Apache-2.0
#include "core/detail/trace_file.h"

#include <cerrno>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossdevice::detail {
namespace {

constexpr ::mode_t kMode = 0666;
constexpr std::size_t kEnoughBytes = std::size_t{64} << 10;
constexpr double kNanosecondsPerMicrosecond = 1000;
constexpr int kMostAttempts = 100;  // processes on other machines may have this one's number

/// As the inside of a JSON string; control characters become blanks.
void append_escaped(std::string& to, std::string_view text) {
  for (const char each : text) {
    if (each == '"' || each == '\\') to += '\\';
    to += static_cast<unsigned char>(each) < ' ' ? ' ' : each;
  }
}

std::string escaped(std::string_view text) {
  std::string result;
  append_escaped(result, text);
  return result;
}

std::int64_t system_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Opens the file and empties it; -1: another process writes to it, and it is as it was. The lock is that process's as long as it has the file open. Where
/// there are no locks (some network file systems), and for devices and pipes, it is opened all the same.
int open_alone(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kMode);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return file;
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    (void)::close(file);
    return -1;
  }
  if (::ftruncate(file, 0) != 0) {
    const int error = errno;
    (void)::close(file);
    throw std::system_error(error, std::generic_category(), path);
  }
  return file;
}

}  // namespace

std::string expand_trace_path(std::string path, std::string_view rank) {
  const std::string pid = std::to_string(::getpid());
  const auto replace = [&path](std::string_view what, const std::string& with) {
    for (std::size_t at = path.find(what); at != std::string::npos;
         at = path.find(what, at + with.size())) {
      path.replace(at, what.size(), with);
    }
  };
  replace("%p", pid);
  replace("%r", rank.empty() ? "pid" + pid : std::string(rank));
  return path;
}

TraceFile::TraceFile(const std::string& path, std::string_view rank)
    : path_(path), file_(open_alone(path)), pid_(::getpid()) {
  for (int attempt = 1; file_ < 0; ++attempt) {
    if (attempt > kMostAttempts) {
      throw std::runtime_error("other processes write to " + path_);
    }
    path_ = fmt::format("{}.{}", path, pid_);
    if (attempt > 1) path_ += fmt::format(".{}", attempt);
    file_ = open_alone(path_);
  }
  put("[\n");
  // Both clocks at one moment: what brings the files of several machines together where nothing better is known.
  put_metadata("crossdevice_clock", 0,
               fmt::format("\"clock\":\"{}\",\"monotonic_ns\":{},\"realtime_ns\":{}",
                           escaped(trace_clock_id()), trace_clock_ns(), system_clock_ns()));
  put_metadata("process_name", 0,
               rank.empty() ? fmt::format("\"name\":\"process {}\"", pid_)
                            : fmt::format("\"name\":\"rank {} (pid {})\"", escaped(rank), pid_));
}

TraceFile::~TraceFile() {
  if (file_ >= 0) (void)::close(file_);
}

void TraceFile::put(std::string_view text) {
  text_ += text;
  if (text_.size() >= kEnoughBytes) flush();
}

void TraceFile::put_metadata(std::string_view what, int track, std::string_view arguments) {
  put(fmt::format("{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{{}}}}},\n", what,
                  pid_, track, arguments));
}

void TraceFile::name_process(int rank, std::string_view host) {
  put_metadata("process_name", 0,
               fmt::format("\"name\":\"rank {} ({}, pid {})\"", rank, escaped(host), pid_));
  put_metadata("process_sort_index", 0, fmt::format("\"sort_index\":{}", rank));
}

int TraceFile::track(std::string_view device, std::uint32_t thread) {
  const auto found = tracks_.find(std::pair<std::string, std::uint32_t>(device, thread));
  if (found != tracks_.end()) return found->second;
  const int number = static_cast<int>(tracks_.size()) + 1;
  tracks_.emplace(std::pair<std::string, std::uint32_t>(device, thread), number);
  std::string name = fmt::format("thread {}", thread);
  if (!device.empty()) {
    const int earlier = num_tracks_of_[std::string(device)]++;
    name = earlier == 0 ? escaped(device) : fmt::format("{}, thread {}", escaped(device), thread);
  }
  put_metadata("thread_name", number, fmt::format("\"name\":\"{}\"", name));
  return number;
}

void TraceFile::note_clock(const ClockOffset& offset) {
  put_metadata(
      "crossdevice_clock_offset", 0,
      fmt::format("\"clock\":\"{}\",\"at_ns\":{},\"to_add_ns\":{},\"within_ns\":{}",
                  escaped(offset.clock), offset.at_ns, offset.to_add_ns, offset.within_ns));
}

void TraceFile::write(const TraceEvent& event, std::uint32_t thread) {
  const TraceArguments& about = event.arguments;
  const std::size_t num_tracks = about.tracks == nullptr ? 0 : about.tracks->names.size();
  const auto put_text = [this](const char* what, std::string_view text) {
    if (text.empty()) return;
    line_ += '"';
    line_ += what;
    line_ += "\":\"";
    append_escaped(line_, text);
    line_ += "\",";
  };
  for (std::size_t i = 0; i == 0 || i < num_tracks; ++i) {
    const int tid = track(num_tracks == 0 ? std::string_view() : about.tracks->names[i], thread);
    line_.clear();
    auto out = std::back_inserter(line_);
    line_ += "{\"name\":\"";
    append_escaped(line_, event.name);  // a program's own bars are called what it likes
    line_ += "\",\"cat\":\"";
    append_escaped(line_, event.category);
    fmt::format_to(
        out, "\",\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":{},\"tid\":{},\"args\":{{",
        static_cast<double>(event.begin_ns) / kNanosecondsPerMicrosecond,
        static_cast<double>(event.end_ns - event.begin_ns) / kNanosecondsPerMicrosecond, pid_, tid);
    const std::size_t without_arguments = line_.size();
    if (about.sequence != 0) fmt::format_to(out, "\"sequence\":{},", about.sequence);
    if (about.num_bytes != 0) fmt::format_to(out, "\"bytes\":{},", about.num_bytes);
    put_text("dtype", about.dtype);
    if (about.algorithm != nullptr) put_text("algorithm", about.algorithm);
    if (line_.size() != without_arguments) line_.pop_back();
    line_ += "}},\n";
    put(line_);
  }
}

void TraceFile::flush() {
  for (std::string_view rest = text_; !rest.empty() && file_ >= 0 && error_ == 0;) {
    const ssize_t count = ::write(file_, rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  text_.clear();
}

void TraceFile::close(std::uint64_t num_dropped) {
  put(
      fmt::format("{{\"name\":\"crossdevice_end\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{"
                  "\"dropped\":{}}}}}\n]\n",
                  pid_, num_dropped));
  flush();
  // In so many words: a child of fork() that lives on has the file open too.
  if (file_ >= 0) (void)::flock(file_, LOCK_UN);
  if (file_ >= 0 && ::close(file_) != 0 && error_ == 0) error_ = errno;
  file_ = -1;
}

}  // namespace crossdevice::detail
