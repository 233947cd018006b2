// SPDX-License-Identifier: Apache-2.0
/// The tasks that are this process's are a list that never changes, and is replaced as a whole: whoever asks, at every call of an op, takes no lock.
#include "crossdevice/comm/logical_workers.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/device_spec.h"
#include "crossdevice/device/label_filter.h"

#include "comm/detail/own_tasks.h"

namespace crossdevice {
namespace {

struct Task {
  std::string job;
  std::int64_t task;
  friend bool operator==(const Task&, const Task&) = default;
};

using TaskList = std::vector<Task>;

// Never destroyed: devices are asked about until the process ends.
struct Tasks {
  std::mutex mutex;   // guards the following
  TaskList own;       // that this process has joined as
  TaskList declared;  // that the program has named
  std::vector<std::unique_ptr<const TaskList>>
      published;  // all that ever counted: somebody may still read an earlier one
};

Tasks& tasks() {
  static Tasks& instance = *new Tasks;
  return instance;
}

constinit std::atomic<const TaskList*> counted{
    nullptr};  // of `published` the last; set before the filter is

bool is_own(const DeviceSpec& device) {
  const TaskList& all = *counted.load(std::memory_order_acquire);
  return device.replica == 0 && std::any_of(all.begin(), all.end(), [&](const Task& each) {
           return device.job == each.job && device.task == each.task;
         });
}

/// With the lock held.
void publish(Tasks& known) {
  if (known.own.empty()) return;  // every label is this process's
  TaskList all = known.own;
  all.insert(all.end(), known.declared.begin(), known.declared.end());
  if (!known.published.empty() && all == *known.published.back()) return;
  known.published.push_back(std::make_unique<const TaskList>(std::move(all)));
  counted.store(known.published.back().get(), std::memory_order_release);
  detail::set_label_filter(&is_own);
}

Task task_of(const std::string& worker) {
  const DeviceSpec spec = DeviceSpec::from_string(worker);
  const bool has_device = spec.device_type.has_value() || spec.device_index.has_value();
  if (!spec.job.has_value() || !spec.task.has_value() || spec.replica.value_or(0) != 0 ||
      has_device) {
    throw ValueError(fmt::format(
        "set_logical_workers: expected workers like /job:worker/task:0, got '{}'", worker));
  }
  return {*spec.job, *spec.task};
}

}  // namespace

void set_logical_workers(std::span<const std::string> workers) {
  TaskList named;
  named.reserve(workers.size());
  for (const std::string& each : workers) named.push_back(task_of(each));
  Tasks& known = tasks();
  const std::lock_guard lock(known.mutex);
  known.declared = std::move(named);
  publish(known);
}

namespace detail {

void add_own_task(const std::string& job, int task) {
  const Task mine{job, task};
  Tasks& known = tasks();
  const std::lock_guard lock(known.mutex);
  if (std::find(known.own.begin(), known.own.end(), mine) != known.own.end()) return;
  known.own.push_back(mine);
  publish(known);
}

}  // namespace detail
}  // namespace crossdevice
