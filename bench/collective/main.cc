// SPDX-License-Identifier: Apache-2.0
/// crossdevice-bench: measures the collective operations of one process.
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/core/version.h"

#include "collective/arguments.h"
#include "collective/machine.h"
#include "collective/measure.h"
#include "collective/owner_threads.h"
#include "collective/plan.h"
#include "collective/report_json.h"
#include "collective/report_table.h"
#include "support/byte_size.h"
#include "support/named_ops.h"
#include "support/program.h"

namespace {

using namespace crossdevice;         // NOLINT(google-build-using-namespace): the program's own
using namespace crossdevice::bench;  // NOLINT(google-build-using-namespace)

void print_head(const Arguments& arguments, const MeasureOptions& options) {
  fmt::print("# crossdevice-bench {}: {}\n", library_version_string(), describe_machine());
  fmt::print("# {} with {} ({}) on {}\n", to_string(arguments.collective), options.ops.name,
             options.algorithm, arguments.devices.to_string());
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

void print_foot(const std::vector<Row>& rows, std::size_t num_wrong) {
  double sum = 0;
  for (const Row& row : rows) sum += row.bus_bandwidth();
  fmt::print(
      "# %lim: in-place of an in-place scale of the same buffers, out-of-place of a non-temporal "
      "copy of the same bytes\n");
  fmt::print("# Wrong values         : {} {}\n", num_wrong, num_wrong == 0 ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.2f} GB/s\n",
             rows.empty() ? 0.0 : sum / static_cast<double>(rows.size()));
}

int run(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse_arguments(argc, argv);
  if (!arguments) return programs::kExitOk;
  const std::vector<CaseGroup> groups = plan_cases(*arguments);
  std::ofstream json;
  if (arguments->json) {
    json.open(
        *arguments->json);  // before measuring: a path that cannot be written is known at once
    if (!json) throw programs::ArgumentError(fmt::format("cannot write {}", *arguments->json));
  }
  programs::NamedOps ops = programs::make_ops(
      arguments->ops, arguments->devices,
      {.num_packs = arguments->num_packs, .all_reduce_spec = arguments->all_reduce_spec});
  std::string algorithm = programs::algorithm_name(
      ops.name, arguments->devices, arguments->communication, arguments->all_reduce_spec);
  const MeasureOptions options{.ops = std::move(ops),
                               .algorithm = std::move(algorithm),
                               .communication = arguments->communication,
                               .timing = arguments->timing,
                               .check = arguments->check ? CheckValues::YES : CheckValues::NO};
  const ShowPercentiles percentiles =
      arguments->show_percentiles ? ShowPercentiles::YES : ShowPercentiles::NO;

  print_head(*arguments, options);
  fmt::print("{}", table_head(percentiles));
  std::fflush(stdout);
  OwnerThreads owners(arguments->devices.size());
  std::vector<Row> rows;
  std::size_t num_wrong = 0;
  for (const CaseGroup& group : groups) {
    const std::vector<RowPair> measured = measure_cases(group, "flat_buffer", options, owners);
    for (const RowPair& pair : measured) {
      fmt::print("{}", table_line(pair, percentiles));
      num_wrong += wrong_in(pair);
      rows.push_back(pair.out_of_place);
      if (pair.in_place) rows.push_back(*pair.in_place);
    }
    if (measured.size() > 1) print_ratio(measured);
    std::fflush(stdout);
  }
  print_foot(rows, num_wrong);
  if (arguments->json) {
    json << json_report(rows);
    json.close();
    if (!json) throw std::runtime_error(fmt::format("could not write {}", *arguments->json));
  }
  return num_wrong == 0 ? programs::kExitOk : programs::kExitWrongValues;
}

}  // namespace

int main(int argc, char** argv) {
  return crossdevice::programs::run_program("crossdevice-bench", [&] { return run(argc, argv); });
}
