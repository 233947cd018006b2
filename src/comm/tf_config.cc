// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tf_config.h"

#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "crossdevice/core/error.h"

#include "comm/detail/launcher_variables.h"

namespace crossdevice::detail {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;

[[noreturn]] void throw_expected(std::string_view where, std::string_view expected,
                                 const Json& got) {
  throw ValueError(
      fmt::format("TF_CONFIG: {}: expected {}, got {}", where, expected, printable(got.dump())));
}

/// Refuses a key given twice in one object, where readers disagree about which one counts, and nesting that only an accident writes (and
/// that would exhaust the stack when it is shown).
Json parse_json(const std::string& text) {
  std::vector<std::set<std::string>> names;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) {
      throw ValueError(fmt::format("TF_CONFIG: nested deeper than {} levels", kMaxDepth));
    }
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second) {
        throw ValueError(
            fmt::format("TF_CONFIG: the key '{}' is given twice in one object", printable(name)));
      }
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw ValueError(fmt::format("TF_CONFIG: expected JSON, got '{}': {}", printable(text),
                                 printable(error.what())));
  }
}

/// The member called `name`; nullptr where it is absent or null.
const Json* find(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> find_text(const Json& object, const char* name) {
  const Json* const value = find(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw_expected(name, "a string", *value);
  return value->get<std::string>();
}

std::optional<int> index_of(std::string_view text) {
  const std::optional<std::uint64_t> number = parse_digits(text);
  if (!number.has_value() || *number > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*number);
}

void add_address(std::vector<ClusterTask>& tasks, const std::string& job, int index,
                 const Json& address) {
  if (!address.is_string()) throw_expected(job, "addresses as strings", address);
  tasks.push_back({job, index, address.get<std::string>()});
}

ClusterSpec cluster_spec_of(const Json& cluster) {
  if (!cluster.is_object()) throw_expected("cluster", "an object of jobs", cluster);
  std::vector<ClusterTask> tasks;
  for (const auto& [job, addresses] : cluster.items()) {
    if (addresses.is_array()) {
      int index = 0;
      for (const Json& address : addresses) add_address(tasks, job, index++, address);
    } else if (addresses.is_object()) {
      for (const auto& [key, address] : addresses.items()) {
        const std::optional<int> index = index_of(key);
        if (!index.has_value()) throw_expected(job, "task indices as keys", addresses);
        add_address(tasks, job, *index, address);
      }
    } else {
      throw_expected(job, "a list of addresses, or an object of index and address", addresses);
    }
  }
  try {
    return ClusterSpec(tasks);
  } catch (const ValueError& error) {
    throw ValueError(fmt::format("TF_CONFIG: cluster: {}", error.what()));
  }
}

void read_task(const Json& task, TFConfig& config) {
  if (!task.is_object()) throw_expected("task", "an object", task);
  if (const Json* const type = find(task, "type")) {
    if (type->is_string()) {
      config.task_type = type->get<std::string>();
    } else if (type->is_number_integer()) {  // TF casts
      config.task_type = type->dump();
    } else {
      throw_expected("task: type", "a string", *type);
    }
  }
  if (const Json* const index = find(task, "index")) {
    if (index->is_number_integer()) {
      config.task_index = index_of(index->dump());
    } else if (index->is_string()) {
      config.task_index = index_of(index->get_ref<const std::string&>());
    }
    if (!config.task_index.has_value()) {
      throw_expected("task: index", "a whole number that is at least 0", *index);
    }
  }
}

}  // namespace

TFConfig parse_tf_config(const std::string& text) {
  const Json json = parse_json(text);
  if (!json.is_object()) throw_expected("the whole", "an object", json);
  TFConfig config;
  const Json* const cluster = find(json, "cluster");
  const Json* const sparse = find(json, "sparseCluster");
  if (cluster != nullptr && sparse != nullptr) {
    throw ValueError("TF_CONFIG: has both 'cluster' and 'sparseCluster', expected one of them");
  }
  config.is_sparse_cluster = sparse != nullptr;
  if (cluster != nullptr) config.cluster_spec = cluster_spec_of(*cluster);
  if (sparse != nullptr) config.cluster_spec = cluster_spec_of(*sparse);
  if (const Json* const task = find(json, "task")) read_task(*task, config);
  config.rpc_layer = find_text(json, "rpc_layer");
  config.session_master = find_text(json, "session_master");
  config.environment = find_text(json, "environment");
  return config;
}

}  // namespace crossdevice::detail
