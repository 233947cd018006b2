// SPDX-License-Identifier: Apache-2.0
/// crossdevice-bench: measures the collective operations of one process, or of several workers.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/version.h"

#include "collective/arguments.h"
#include "collective/measure.h"
#include "collective/plan.h"
#include "collective/report_run.h"
#include "collective/sizes.h"
#include "collective/start_workers.h"
#include "collective/team.h"
#include "collective/team_ops.h"
#include "support/byte_size.h"
#include "support/program.h"

namespace {

using namespace crossdevice;         // NOLINT(google-build-using-namespace): the program's own
using namespace crossdevice::bench;  // NOLINT(google-build-using-namespace)

int explain(const Arguments& arguments, const TeamOps& together) {
  if (!together.explain) {
    throw programs::ArgumentError("--explain: one process has nothing to choose; add --workers");
  }
  if (!together.team.is_first()) return programs::kExitOk;
  for (const std::size_t size : sizes_in(arguments.sizes)) {
    fmt::print("{:>8}  {}\n", programs::format_byte_size(size), together.explain(size));
  }
  fmt::print("{:>8}  {}\n", "packs", together.explain_packs());
  return programs::kExitOk;
}

int measure_with(const Arguments& arguments, TeamOps& together, std::vector<CaseGroup> groups,
                 std::ofstream& json) {
  if (arguments.explain) return explain(arguments, together);
  Team& team = together.team;
  const MeasureOptions options{
      .runner = run_with(together.ops, together.algorithm, arguments.communication),
      .timing = arguments.timing,
      .check = arguments.check ? CheckValues::YES : CheckValues::NO,
      .placing = {.num_hosts = team.num_hosts(),
                  .num_namespaces = arguments.workers.num_namespaces,
                  .rate = arguments.workers.rate},
      .raw_nccl = together.raw_nccl};
  return measure_and_report(fmt::format("crossdevice-bench {}", library_version_string()),
                            arguments, options, team, std::move(groups), json);
}

int run(int argc, char** argv) {
  std::optional<Arguments> arguments =
      parse_arguments(argc, argv, [] { return detect_cluster_resolver()->identity().num_workers; });
  if (!arguments) return programs::kExitOk;
  std::vector<CaseGroup> groups = plan_cases(*arguments);
  const bool is_one_of_several = arguments->workers.are_running;
  const bool is_first = !is_one_of_several || detect_cluster_resolver()->identity().rank == 0;
  std::ofstream json;
  if (is_first) json = open_json(*arguments);
  if (arguments->workers.num_workers > 1 && !is_one_of_several) {
    return start_workers(arguments->workers, argc, argv);
  }
  std::shared_ptr<Cluster> cluster;
  if (arguments->workers.num_workers > 0) cluster = meet_workers(*arguments);
  if (arguments->takes_own_gpus) groups = plan_cases(*arguments);
  TeamOps together = make_team_ops(*arguments, cluster);
  if (!is_one_of_several) return measure_with(*arguments, together, std::move(groups), json);
  const int code = programs::run_program("crossdevice-bench", [&] {
    return measure_with(*arguments, together, std::move(groups), json);
  });
  if (code >= programs::kExitBadArguments) {
    // Who fails ends before the others notice, without a farewell that would wait for them: so the job's status is this one's.
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return crossdevice::programs::run_program("crossdevice-bench", [&] { return run(argc, argv); });
}
