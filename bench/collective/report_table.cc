// SPDX-License-Identifier: Apache-2.0
/// Columns of fixed width.
#include "collective/report_table.h"

#include <fmt/core.h>

namespace crossdevice::bench {

namespace {

/// nccl-tests' word for a reduction.
std::string redop_name(const Case& test_case) {
  if (!reduces(test_case.collective)) return "none";
  switch (test_case.op) {
    case ReduceOp::SUM:
      return "sum";
    case ReduceOp::MEAN:
      return "avg";
    case ReduceOp::MIN:
      return "min";
    case ReduceOp::MAX:
      return "max";
    case ReduceOp::PROD:
      return "prod";
  }
  return "";  // unreachable: every enumerator returns above
}

std::string time_column(double time_us) {
  return fmt::format(" {:>8.{}f}", time_us, time_us < 100 ? 2 : time_us < 1000 ? 1 : 0);
}

/// The half of a line that belongs to one placement.
std::string half(const Row* row, ShowPercentiles percentiles, ShowRawNccl raw_nccl) {
  const std::size_t num_times = percentiles == ShowPercentiles::YES ? 3 : 1;
  if (row == nullptr) {
    std::string columns;
    for (std::size_t i = 0; i < num_times; ++i) columns += fmt::format(" {:>8}", "-");
    if (raw_nccl == ShowRawNccl::YES) columns += fmt::format(" {:>8}", "-");
    return columns + fmt::format(" {:>7} {:>7} {:>5} {:>6}", "-", "-", "-", "-");
  }
  std::string columns = time_column(row->time.median_us);
  if (num_times > 1) columns += time_column(row->time.p10_us) + time_column(row->time.p99_us);
  if (raw_nccl == ShowRawNccl::YES) {
    columns += row->raw_nccl_us ? time_column(*row->raw_nccl_us) : fmt::format(" {:>8}", "-");
  }
  return columns +
         fmt::format(" {:>7.2f} {:>7.2f} {:>5} {:>6}", row->algorithm_bandwidth(),
                     row->bus_bandwidth(),
                     row->limit.empty() ? "-" : fmt::format("{:.0f}", row->percent_of_limit()),
                     row->wrong ? fmt::format("{}", *row->wrong) : "N/A");
}

}  // namespace

std::string table_head(ShowPercentiles percentiles, ShowRawNccl raw_nccl) {
  const bool all = percentiles == ShowPercentiles::YES;
  const bool has_raw = raw_nccl == ShowRawNccl::YES;
  const std::string times =
      std::string(all ? "     time      p10      p99" : "     time") + (has_raw ? " raw NCCL" : "");
  const std::string units =
      std::string(all ? "     (us)     (us)     (us)" : "     (us)") + (has_raw ? "     (us)" : "");
  const std::string columns = times + "   algbw   busbw  %lim #wrong";
  const std::string column_units = units + "  (GB/s)  (GB/s)              ";
  const std::size_t width = columns.size();
  return fmt::format("#{:>53} {:^{}}   {:^{}}\n", "", "out-of-place", width, "in-place", width) +
         fmt::format("# {:>10}  {:>12}  {:>11}  {:>6}  {:>4}  {}  {}\n", "size", "count", "type",
                     "redop", "root", columns, columns) +
         fmt::format("# {:>10}  {:>12}  {:>11}  {:>6}  {:>4}  {}  {}\n", "(B)", "(elements)", "",
                     "", "", column_units, column_units);
}

std::string table_line(const RowPair& rows, ShowPercentiles percentiles, ShowRawNccl raw_nccl) {
  const Case& test_case = rows.out_of_place.test_case;
  const std::size_t size_bytes = test_case.size_bytes();
  const std::string root =
      has_root(test_case.collective) ? fmt::format("{}", test_case.root) : "-1";
  return fmt::format("{:>12}  {:>12}  {:>11}  {:>6}  {:>4}  {}  {}\n", size_bytes,
                     size_bytes / size_in_bytes(test_case.dtype), to_string(test_case.dtype),
                     redop_name(test_case), root, half(&rows.out_of_place, percentiles, raw_nccl),
                     half(rows.in_place ? &*rows.in_place : nullptr, percentiles, raw_nccl));
}

}  // namespace crossdevice::bench
