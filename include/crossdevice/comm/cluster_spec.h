// SPDX-License-Identifier: Apache-2.0
/// Which jobs a cluster has, and where their tasks are. TF counterpart: tf.train.ClusterSpec.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// One task of one job: "worker", 1, "host-b:2222".
struct CROSSDEVICE_EXPORT ClusterTask {
  std::string job{};
  int index = 0;
  std::string address{};

  friend bool operator==(const ClusterTask&, const ClusterTask&) = default;
};

/// A job whose tasks are numbered from 0: {"worker", {"host-a:2222", "host-b:2222"}}.
struct CROSSDEVICE_EXPORT ClusterJob {
  std::string name{};
  std::vector<std::string> addresses{};
};

/// Jobs by name, and in each the addresses by task index. Indices may have gaps, as in TF. Plain data: says nothing about
/// which names or numbers make sense for training (multi_worker_util.h does).
///
/// Order    jobs by name, tasks by index, as in TF's ClusterDef.
/// Threads  const members: any.
class CROSSDEVICE_EXPORT ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;  ///< address by task index

  /// No job at all: one process that has nobody to meet.
  ClusterSpec() = default;
  /// {{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}}
  ///
  /// Errors   ValueError: a job without a name, or named twice.
  ClusterSpec(std::initializer_list<ClusterJob> jobs);
  /// Tasks in any order, with any indices.
  ///
  /// Errors   ValueError: a job without a name, an index outside 0 .. 1,000,000, a task given twice.
  explicit ClusterSpec(const std::vector<ClusterTask>& tasks);

  /// Whether there is no job.
  [[nodiscard]] bool empty() const { return jobs_.empty(); }
  /// The names of the jobs.
  [[nodiscard]] std::vector<std::string> jobs() const;
  [[nodiscard]] bool has_job(std::string_view job) const;
  /// Every task of every job.
  [[nodiscard]] std::vector<ClusterTask> tasks() const;
  /// The addresses by job and index.
  [[nodiscard]] const std::map<std::string, Tasks, std::less<>>& as_dict() const { return jobs_; }

  /// Errors of the members below   ValueError: no such job, or no such task in it; says which there are.

  /// How many tasks the job has; gaps do not count.
  [[nodiscard]] int num_tasks(std::string_view job) const;
  [[nodiscard]] std::vector<int> task_indices(std::string_view job) const;
  [[nodiscard]] const std::string& task_address(std::string_view job, int index) const;
  /// The addresses from index 0 to the last one; empty where an index is missing.
  [[nodiscard]] std::vector<std::string> job_tasks(std::string_view job) const;
  /// Whether the indices are 0, 1, ... without a gap.
  [[nodiscard]] bool is_dense(std::string_view job) const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

 private:
  void add(const std::string& job, int index, const std::string& address);
  [[nodiscard]] const Tasks& tasks_of(std::string_view job) const;

  std::map<std::string, Tasks, std::less<>> jobs_;
};

/// "{chief: [a:1], worker: [b:1, c:1]}", "{worker: {1: b:1}}" where indices have gaps, "{}" for none.
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const ClusterSpec& spec);
CROSSDEVICE_EXPORT std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec);

}  // namespace crossdevice
