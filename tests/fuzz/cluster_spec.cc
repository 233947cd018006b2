// SPDX-License-Identifier: Apache-2.0
// Clusters that a program makes of lists: of jobs, and of tasks in any order with any indices. Refused where a name or a task is none or is there twice;
// else what every question says agrees with the list.
#include "crossdevice/comm/cluster_spec.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMaxJobs = 3;
constexpr int kMaxIndex = 1'000'000;

using Places = std::map<std::pair<std::string, int>, std::string>;

/// Nothing: refused, with words.
template <class Call>
auto value_or_error(Call call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const ValueError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
    return std::nullopt;
  }
}

/// One of few, so that the same comes again; or none.
std::string name_of(fuzz::Input& input) {
  constexpr const char* kNames[] = {"worker", "chief", "ps", ""};
  const std::size_t which = input.below(6);
  return which < std::size(kNames) ? kNames[which] : input.text();
}

/// A question about a job, which may be none of the cluster's.
void ask(const ClusterSpec& spec, const Places& places, const std::string& job, int index) {
  std::vector<int> indices;
  for (const auto& [place, address] : places) {
    if (place.first == job) indices.push_back(place.second);
  }
  const auto found = places.find({job, index});
  const auto address = value_or_error([&] { return spec.task_address(job, index); });
  FUZZ_EXPECT(address.has_value() == (found != places.end()));
  FUZZ_EXPECT(!address.has_value() || *address == found->second);
  const auto known = value_or_error([&] { return spec.task_indices(job); });
  FUZZ_EXPECT(known.has_value() == spec.has_job(job));
  if (!known.has_value()) return;
  FUZZ_EXPECT(*known == indices);
  FUZZ_EXPECT(spec.num_tasks(job) == static_cast<int>(indices.size()));
  const bool is_dense = indices.empty() || indices.back() + 1 == static_cast<int>(indices.size());
  FUZZ_EXPECT(spec.is_dense(job) == is_dense);
  if (!indices.empty() && indices.back() > 1000) return;  // gaps are filled
  const std::vector<std::string> addresses = spec.job_tasks(job);
  FUZZ_EXPECT(addresses.size() ==
              static_cast<std::size_t>(indices.empty() ? 0 : indices.back() + 1));
  for (const int each : indices) {
    FUZZ_EXPECT(addresses[static_cast<std::size_t>(each)] == spec.task_address(job, each));
  }
}

void check(fuzz::Input& input, const ClusterSpec& spec, const Places& places) {
  FUZZ_EXPECT(ClusterSpec(spec.tasks()).tasks() == spec.tasks());
  FUZZ_EXPECT(spec.tasks().size() == places.size());
  FUZZ_EXPECT(spec.empty() == spec.jobs().empty());
  std::ostringstream printed;
  printed << spec;
  FUZZ_EXPECT(printed.str() == to_string(spec));
  for (const std::string& job : spec.jobs()) ask(spec, places, job, 0);
  const std::string job = name_of(input);
  ask(spec, places, job, input.coin() ? input.number<std::int8_t>() : input.number<std::int32_t>());
}

void check_jobs(fuzz::Input& input) {
  std::vector<ClusterJob> jobs(input.below(kMaxJobs + 1));
  Places places;
  bool is_right = true;
  for (auto job = jobs.begin(); job != jobs.end(); ++job) {
    job->name = name_of(input);
    const auto is_same = [&](const ClusterJob& other) { return other.name == job->name; };
    is_right = is_right && !job->name.empty() && std::none_of(jobs.begin(), job, is_same);
    job->addresses.resize(input.below(4));
    int index = 0;
    for (std::string& address : job->addresses) {
      address = input.text();
      places[{job->name, index++}] = address;
    }
  }
  const auto spec = value_or_error([&]() -> ClusterSpec {
    switch (jobs.size()) {
      case 0:
        return {};
      case 1:
        return {jobs[0]};
      case 2:
        return {jobs[0], jobs[1]};
      default:
        return {jobs[0], jobs[1], jobs[2]};
    }
  });
  FUZZ_EXPECT(spec.has_value() == is_right);
  if (spec.has_value()) check(input, *spec, places);
}

void check_tasks(fuzz::Input& input) {
  std::vector<ClusterTask> tasks(input.below(8));
  Places places;
  bool is_right = true;
  for (ClusterTask& task : tasks) {
    task.job = name_of(input);
    task.index =
        input.below(4) == 1 ? input.number<std::int32_t>() : static_cast<int>(input.below(5));
    task.address = input.text();
    const bool is_new = places.insert({{task.job, task.index}, task.address}).second;
    is_right =
        is_right && is_new && !task.job.empty() && task.index >= 0 && task.index <= kMaxIndex;
  }
  const auto spec = value_or_error([&] { return ClusterSpec(tasks); });
  FUZZ_EXPECT(spec.has_value() == is_right);
  if (spec.has_value()) check(input, *spec, places);
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::Input input(data, size);
  if (input.coin()) {
    crossdevice::check_jobs(input);
  } else {
    crossdevice::check_tasks(input);
  }
  return 0;
}
