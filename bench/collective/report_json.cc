// SPDX-License-Identifier: Apache-2.0
/// Writes rows with nlohmann/json.
#include "collective/report_json.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace crossdevice::bench {

namespace {

nlohmann::ordered_json or_null(bool is_there, nlohmann::ordered_json value) {
  return is_there ? std::move(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json object;
  object["op"] = to_string(row.test_case.collective);
  object["ops"] = row.ops;
  object["algorithm"] = row.algorithm;
  object["devices"] = row.test_case.num_replicas();
  object["workers"] = row.test_case.num_workers;
  object["hosts"] = row.placing.num_hosts;
  object["namespaces"] = row.placing.num_namespaces;
  object["rate"] = or_null(!row.placing.rate.empty(), row.placing.rate);
  object["memory"] = row.test_case.memory == MemoryKind::POOL ? "pool" : "foreign";
  object["size_bytes"] = row.test_case.size_bytes();
  object["dtype"] = crossdevice::to_string(row.test_case.dtype);
  object["redop"] = reduces(row.test_case.collective)
                        ? nlohmann::ordered_json(crossdevice::to_string(row.test_case.op))
                        : nlohmann::ordered_json(nullptr);
  object["in_place"] = row.placement == Placement::IN_PLACE;
  object["time_us_median"] = row.time.median_us;
  object["time_us_p10"] = row.time.p10_us;
  object["time_us_p99"] = row.time.p99_us;
  object["algbw_gbs"] = row.algorithm_bandwidth();
  object["busbw_gbs"] = row.bus_bandwidth();
  object["wrong"] =
      row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json(nullptr);
  object["traffic_gbs"] = row.traffic_gbs();
  object["raw_nccl_us_median"] = or_null(row.raw_nccl_us.has_value(), row.raw_nccl_us.value_or(0));
  const bool has_limit = !row.limit.empty();
  object["limit"] = or_null(has_limit, row.limit);
  object["limit_gbs"] = or_null(has_limit, row.limit_gbs);
  object["percent_of_limit"] = or_null(has_limit, row.percent_of_limit());
  return object;
}

}  // namespace

std::string json_report(std::span<const Row> rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Row& row : rows) array.push_back(to_json(row));
  return array.dump(2) + "\n";
}

}  // namespace crossdevice::bench
