// SPDX-License-Identifier: Apache-2.0
/// One timeline out of those that the workers have written.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crossdevice::run {

/// What CROSSDEVICE_TRACE says to the workers of a job whose timeline becomes `path`: a file for each process, beside it.
[[nodiscard]] std::string trace_part_pattern(const std::string& path);

/// Of a file "trace.json.RANK.PID.part" where `stem` is "trace.json": its rank. Nothing: it is none.
[[nodiscard]] std::optional<int> rank_of_trace_part(const std::string& file_name,
                                                    const std::string& stem);

/// find_trace_parts(), each with its rank.
[[nodiscard]] std::vector<std::pair<int, std::string>> ranked_trace_parts(const std::string& path);

/// The files that were written by that pattern, by rank; whatever stands there of an earlier job too.
[[nodiscard]] std::vector<std::string> find_trace_parts(const std::string& path);

/// Writes the events of all `parts` to `into` as one list: every part is a process of its own, and times are by the first clock that a part names. Parts of one
/// machine have one clock (CLOCK_MONOTONIC, while it runs); those of others are moved by what their workers found when they compared theirs with the chief's,
/// or failing that by what their system clocks said when they began.
/// Parts may end anywhere: what is no whole event is left out. A process has the last name that its part gives it, once. How many events each part had.
///
/// Errors   std::runtime_error: a part cannot be read.
std::vector<std::size_t> merge_traces(const std::vector<std::string>& parts, std::ostream& into);

/// The same into a new file; the parts stay.
///
/// Errors   std::runtime_error: there is such a file already, it cannot be written, or a part cannot be read or is no timeline. No file is left then.
void merge_trace_files(const std::vector<std::string>& parts, const std::string& path);

/// From construction to finish(): where the workers of a job write, and then one file of it.
class JobTrace {
 public:
  /// `path` empty: nothing is traced. Removes what an earlier job has left.
  ///
  /// Errors   std::runtime_error: `path`, or files beside it, cannot be written. Nothing is removed then.
  explicit JobTrace(std::string path);

  /// "CROSSDEVICE_TRACE=...", for the workers; none where nothing is traced.
  [[nodiscard]] std::vector<std::string> variables() const;
  /// Where the parts lie; empty: nothing is traced.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// After the last worker: makes the file, and removes the parts. Says on standard error what it could not do, or which of `num_workers` have left none.
  void finish(int num_workers) const;

 private:
  std::string path_;
};

}  // namespace crossdevice::run
