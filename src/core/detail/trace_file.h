// SPDX-License-Identifier: Apache-2.0
/// The file of a trace, one event a line: valid to Chrome and Perfetto whenever it ends, and valid JSON when it was closed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "crossdevice/core/trace_clock.h"

#include "core/detail/trace_ring.h"

namespace crossdevice::detail {

/// Threads  one at a time.
class TraceFile {
 public:
  /// `rank`: as the launcher gave it; may be empty. Where another process has the file open as its own trace, this one's is `path`.PID.
  ///
  /// Errors   std::system_error, std::runtime_error: it cannot be made.
  TraceFile(const std::string& path, std::string_view rank);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Where it is.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// What the process is called from now on.
  void name_process(int rank, std::string_view host);
  void note_clock(const ClockOffset& offset);
  void write(const TraceEvent& event, std::uint32_t thread);
  /// To the system.
  void flush();
  /// The last event, and the end of the list.
  void close(std::uint64_t num_dropped);
  /// The first error of the system; 0: none.
  [[nodiscard]] int error() const { return error_; }

 private:
  [[nodiscard]] int track(std::string_view device, std::uint32_t thread);
  void put_metadata(std::string_view what, int track, std::string_view arguments);
  void put(std::string_view text);

  std::string path_;
  // No std::FILE: a child of fork() would write what its parent's holds once more.
  int file_;
  std::int64_t pid_;
  int error_ = 0;
  std::string text_;  // not given to the system yet
  std::string line_;  // kept, so that the next one allocates nothing
  // A track per device and thread, because the bars of one track must nest. No device: the thread's own.
  std::map<std::pair<std::string, std::uint32_t>, int, std::less<>> tracks_;
  std::map<std::string, int, std::less<>> num_tracks_of_;  // by device
};

/// `path` with its "%p" replaced by the process's number, and "%r" by `rank`, or by "pid" and that number where it is empty.
[[nodiscard]] std::string expand_trace_path(std::string path, std::string_view rank);

}  // namespace crossdevice::detail
