// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/cluster_spec.h"

#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

constexpr int kMaxTaskIndex = 1'000'000;  // job_tasks() fills the gaps

}  // namespace

ClusterSpec::ClusterSpec(std::initializer_list<ClusterJob> jobs) {
  for (const ClusterJob& job : jobs) {
    if (has_job(job.name)) throw ValueError(fmt::format("job '{}' is given twice", job.name));
    if (job.name.empty()) throw ValueError("a job needs a name");
    jobs_[job.name];  // a job may have no task
    int index = 0;
    for (const std::string& address : job.addresses) add(job.name, index++, address);
  }
}

ClusterSpec::ClusterSpec(const std::vector<ClusterTask>& tasks) {
  for (const ClusterTask& task : tasks) add(task.job, task.index, task.address);
}

void ClusterSpec::add(const std::string& job, int index, const std::string& address) {
  if (job.empty()) throw ValueError("a job needs a name");
  if (index < 0 || index > kMaxTaskIndex) {
    throw ValueError(fmt::format("job '{}': expected a task index from 0 to {}, got {}", job,
                                 kMaxTaskIndex, index));
  }
  const auto [position, is_new] = jobs_[job].emplace(index, address);
  if (!is_new) {
    throw ValueError(fmt::format("job '{}': task {} is given twice, with '{}' and '{}'", job, index,
                                 position->second, address));
  }
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  names.reserve(jobs_.size());
  for (const auto& [name, tasks] : jobs_) names.push_back(name);
  return names;
}

bool ClusterSpec::has_job(std::string_view job) const { return jobs_.contains(job); }

std::vector<ClusterTask> ClusterSpec::tasks() const {
  std::size_t size = 0;
  for (const auto& [name, tasks] : jobs_) size += tasks.size();
  std::vector<ClusterTask> all;
  all.reserve(size);
  for (const auto& [name, tasks] : jobs_) {
    for (const auto& [index, address] : tasks) all.push_back({name, index, address});
  }
  return all;
}

const ClusterSpec::Tasks& ClusterSpec::tasks_of(std::string_view job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    throw ValueError(
        fmt::format("no job '{}' in the cluster, which has {}", job,
                    jobs_.empty() ? "none" : fmt::format("{}", fmt::join(jobs(), ", "))));
  }
  return found->second;
}

int ClusterSpec::num_tasks(std::string_view job) const {
  return static_cast<int>(tasks_of(job).size());
}

std::vector<int> ClusterSpec::task_indices(std::string_view job) const {
  const Tasks& tasks = tasks_of(job);
  std::vector<int> indices;
  indices.reserve(tasks.size());
  for (const auto& [index, address] : tasks) indices.push_back(index);
  return indices;
}

const std::string& ClusterSpec::task_address(std::string_view job, int index) const {
  const Tasks& tasks = tasks_of(job);
  const auto found = tasks.find(index);
  if (found == tasks.end()) {
    throw ValueError(fmt::format("no task {} in job '{}', which has {}", index, job,
                                 tasks.empty() ? std::string("none")
                                               : fmt::format("{}, the last one is {}", tasks.size(),
                                                             tasks.rbegin()->first)));
  }
  return found->second;
}

std::vector<std::string> ClusterSpec::job_tasks(std::string_view job) const {
  const Tasks& tasks = tasks_of(job);
  std::vector<std::string> addresses;
  if (tasks.empty()) return addresses;
  addresses.resize(static_cast<std::size_t>(tasks.rbegin()->first) + 1);
  for (const auto& [index, address] : tasks) addresses[static_cast<std::size_t>(index)] = address;
  return addresses;
}

bool ClusterSpec::is_dense(std::string_view job) const {
  const Tasks& tasks = tasks_of(job);
  return tasks.empty() || tasks.rbegin()->first == static_cast<int>(tasks.size()) - 1;
}

std::string to_string(const ClusterSpec& spec) {
  std::vector<std::string> jobs;
  jobs.reserve(spec.as_dict().size());
  for (const auto& [name, tasks] : spec.as_dict()) {
    const bool is_dense = spec.is_dense(name);
    std::vector<std::string> words;
    words.reserve(tasks.size());
    for (const auto& [index, address] : tasks) {
      words.push_back(is_dense ? address : fmt::format("{}: {}", index, address));
    }
    const std::string list = fmt::format("{}", fmt::join(words, ", "));
    jobs.push_back(is_dense ? fmt::format("{}: [{}]", name, list)
                            : fmt::format("{}: {{{}}}", name, list));
  }
  return fmt::format("{{{}}}", fmt::join(jobs, ", "));
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& spec) {
  return out << to_string(spec);
}

}  // namespace crossdevice
