// SPDX-License-Identifier: Apache-2.0
/// One measured result: what the table shows half a line of, and the JSON file one object of.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "collective/case_buffers.h"
#include "collective/collective.h"
#include "collective/statistics.h"

namespace crossdevice::bench {

/// Where the workers of a row were.
struct Placing {
  std::size_t num_hosts = 1;
  int num_namespaces = 0;  ///< 0: not in namespaces of this program's making
  std::string rate;        ///< of each namespace's link; empty: not limited
};

struct Row {
  Case test_case;
  std::string ops;        ///< "reduction_to_one_device", ...
  std::string algorithm;  ///< what ran
  Placement placement = Placement::OUT_OF_PLACE;
  TimeStatistics time;
  std::optional<double> raw_nccl_us;  ///< the median of RawNccl; nothing: there is none
  std::optional<std::size_t> wrong;   ///< nothing: not checked
  Placing placing;
  std::string limit;  ///< what percent_of_limit refers to; empty: there is none
  double limit_gbs = 0;

  [[nodiscard]] double algorithm_bandwidth() const;
  [[nodiscard]] double bus_bandwidth() const;
  [[nodiscard]] double traffic_gbs() const;
  [[nodiscard]] double percent_of_limit() const;
};

/// Both placements of one case, as they share a line of the table.
struct RowPair {
  Row out_of_place;
  std::optional<Row> in_place;  ///< nothing where it is not possible
};

}  // namespace crossdevice::bench
