// SPDX-License-Identifier: Apache-2.0
/// Bandwidths of a row.
#include "collective/row.h"

#include "collective/bandwidth.h"

namespace crossdevice::bench {

double Row::algorithm_bandwidth() const {
  return algorithm_bandwidth_gbs(test_case.size_bytes(), time.median_us);
}

double Row::bus_bandwidth() const {
  return algorithm_bandwidth() * bus_factor(test_case.collective, test_case.num_replicas());
}

double Row::traffic_gbs() const {
  const std::size_t bytes =
      memory_traffic_bytes(test_case.collective, placement, test_case.num_replicas(),
                           test_case.size_bytes(), test_case.output_bytes());
  return gigabytes_per_second(static_cast<double>(bytes), time.median_us);
}

double Row::percent_of_limit() const {
  return limit_gbs > 0 ? 100 * traffic_gbs() / limit_gbs : 0.0;
}

}  // namespace crossdevice::bench
