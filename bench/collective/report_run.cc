// SPDX-License-Identifier: Apache-2.0
/// Measures group by group, and prints what it has.
#include "collective/report_run.h"

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <fmt/core.h>

#include "collective/gpu_contenders.h"
#include "collective/machine.h"
#include "collective/owner_threads.h"
#include "collective/report_json.h"
#include "collective/report_table.h"
#include "support/byte_size.h"
#include "support/program.h"

namespace crossdevice::bench {

namespace {

void print_workers(const Arguments& arguments, const Team& team) {
  fmt::print("# {} workers on {} host{}", team.num_workers(), team.num_hosts(),
             team.num_hosts() == 1 ? "" : "s");
  if (arguments.workers.num_namespaces > 0) {
    fmt::print(", which are network namespaces");
    if (!arguments.workers.rate.empty()) fmt::print(" with links of {}", arguments.workers.rate);
  }
  fmt::print("; the devices are each worker's\n");
}

void print_head(const std::string& program, const Arguments& arguments,
                const MeasureOptions& options, const Team& team) {
  fmt::print("# {}: {}\n", program, describe_machine());
  fmt::print("# {} with {} ({}) on {}\n", to_string(arguments.collective), options.runner.name,
             options.runner.algorithm, arguments.devices.to_string());
  if (arguments.workers.num_workers > 0) print_workers(arguments, team);
  if (!arguments.devices.all_host()) fmt::print("# {}\n", describe_gpus(arguments.devices));
  if (arguments.memory == MemoryKind::FOREIGN) fmt::print("# memory that is not from the pool\n");
  if (arguments.gradients) {
    fmt::print("# gradients {}", *arguments.gradients);
  } else {
    fmt::print("# sizes {} to {}", programs::format_byte_size(arguments.sizes.min_bytes),
               programs::format_byte_size(arguments.sizes.max_bytes));
  }
  fmt::print(", {} timed calls in {} rounds, warmup {}, check {}\n#\n", arguments.timing.iterations,
             arguments.timing.rounds, arguments.timing.warmup, arguments.check ? 1 : 0);
}

std::size_t wrong_in(const RowPair& rows) {
  return rows.out_of_place.wrong.value_or(0) +
         (rows.in_place ? rows.in_place->wrong.value_or(0) : 0);
}

/// What a batch costs compared with one flat buffer: group[0] is the flat buffer, group[1] the batch.
void print_ratio(const std::vector<RowPair>& group) {
  const auto ratio = [](const Row& batch, const Row& flat) {
    return batch.time.median_us / flat.time.median_us;
  };
  fmt::print("# batch of {} tensors / one flat buffer of the same bytes: out-of-place {:.3f}",
             group[1].out_of_place.test_case.shapes.size(),
             ratio(group[1].out_of_place, group[0].out_of_place));
  if (group[1].in_place && group[0].in_place) {
    fmt::print(", in-place {:.3f}", ratio(*group[1].in_place, *group[0].in_place));
  }
  fmt::print("\n");
}

void print_foot(const std::vector<Row>& rows, std::size_t num_wrong, const Arguments& arguments,
                const Team& team) {
  double sum = 0;
  for (const Row& row : rows) sum += row.bus_bandwidth();
  if (!arguments.devices.all_host()) {
    fmt::print("# %lim: of a flat copy of every input on its own GPU, all at once\n");
  } else if (team.num_hosts() == 1) {
    fmt::print(
        "# %lim: in-place of an in-place scale of the same buffers, out-of-place of a non-temporal "
        "copy of the same bytes{}\n",
        team.num_workers() > 1 ? ", by all workers at once" : "");
  }
  fmt::print("# Wrong values         : {} {}\n", num_wrong, num_wrong == 0 ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.2f} GB/s\n",
             rows.empty() ? 0.0 : sum / static_cast<double>(rows.size()));
}

/// Measures all groups; prints them while it does, if this worker is the one that prints. Returns the wrong elements in all of them.
std::size_t measure_and_print(const std::string& program, const Arguments& arguments,
                              const MeasureOptions& options, Team& team,
                              std::vector<CaseGroup> groups, std::vector<Row>& rows) {
  const ShowPercentiles percentiles =
      arguments.show_percentiles ? ShowPercentiles::YES : ShowPercentiles::NO;
  const ShowRawNccl raw_nccl = arguments.devices.all_host() ? ShowRawNccl::NO : ShowRawNccl::YES;
  OwnerThreads owners(arguments.devices.size());
  std::size_t num_wrong = 0;
  if (team.is_first()) {
    print_head(program, arguments, options, team);
    fmt::print("{}", table_head(percentiles, raw_nccl));
    std::fflush(stdout);
  }
  for (CaseGroup& group : groups) {
    for (Case& test_case : group) test_case.worker = team.rank();
    const std::vector<RowPair> measured =
        measure_cases(group, "flat_buffer", options, owners, team);
    for (const RowPair& pair : measured) {
      if (team.is_first()) fmt::print("{}", table_line(pair, percentiles, raw_nccl));
      num_wrong += wrong_in(pair);
      rows.push_back(pair.out_of_place);
      if (pair.in_place) rows.push_back(*pair.in_place);
    }
    if (measured.size() > 1 && team.is_first()) print_ratio(measured);
    std::fflush(stdout);
  }
  return num_wrong;
}

}  // namespace

std::ofstream open_json(const Arguments& arguments) {
  std::ofstream json;
  if (!arguments.json) return json;
  json.open(*arguments.json);
  if (!json) throw programs::ArgumentError(fmt::format("cannot write {}", *arguments.json));
  return json;
}

int measure_and_report(const std::string& program, const Arguments& arguments,
                       const MeasureOptions& options, Team& team, std::vector<CaseGroup> groups,
                       std::ofstream& json) {
  std::vector<Row> rows;
  const std::size_t num_wrong =
      measure_and_print(program, arguments, options, team, std::move(groups), rows);
  // The others have nothing to say, and must not end with a failure while the first one still writes.
  if (!team.is_first()) return programs::kExitOk;
  print_foot(rows, num_wrong, arguments, team);
  if (arguments.json) {
    json << json_report(rows);
    json.close();
    if (!json) throw std::runtime_error(fmt::format("could not write {}", *arguments.json));
  }
  return num_wrong == 0 ? programs::kExitOk : programs::kExitWrongValues;
}

}  // namespace crossdevice::bench
