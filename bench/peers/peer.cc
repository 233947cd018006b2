// SPDX-License-Identifier: Apache-2.0
/// Puts a peer's call where the library's own would stand.
#include "peers/peer.h"

#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

#include "collective/arguments.h"
#include "collective/case_runner.h"
#include "collective/measure.h"
#include "collective/plan.h"
#include "collective/report_run.h"
#include "support/program.h"

namespace crossdevice::bench {

namespace {

void require_what_peers_do(const Arguments& arguments) {
  const auto refuse = [](const char* what) {
    throw programs::ArgumentError(fmt::format("a peer measures {}", what));
  };
  if (arguments.collective != Collective::ALL_REDUCE &&
      arguments.collective != Collective::BATCH_REDUCE) {
    refuse("all_reduce, and the batch_reduce of --gradients");
  }
  if (arguments.dtypes != std::vector<DType>{DType::FLOAT32}) refuse("float32");
  if (arguments.redops != std::vector<ReduceOp>{ReduceOp::SUM}) refuse("sum");
  if (arguments.devices.size() != 1) refuse("one device of each worker");
  if (arguments.explain) refuse("and explains nothing");
}

CaseRunner runner_of(const Peer& peer) {
  return {.name = peer.name,
          .algorithm = peer.algorithm,
          .run = [&peer](const Case& test_case, const CaseBuffers& buffers, Placement placement) {
            for (std::size_t t = 0; t < test_case.shapes.size(); ++t) {
              const Tensor& input = buffers.inputs()[t].values()[0];
              const Tensor& output = buffers.outputs(placement)[t].values()[0];
              peer.all_reduce(static_cast<const float*>(input.data()),
                              static_cast<float*>(output.data()),
                              static_cast<std::size_t>(input.num_elements()));
            }
          }};
}

}  // namespace

int measure_peer(Peer& peer, int argc, const char* const* argv) {
  Team& team = peer.team;
  std::optional<Arguments> arguments =
      parse_arguments(argc, argv, [&team] { return static_cast<int>(team.num_workers()); });
  if (!arguments) return programs::kExitOk;
  require_what_peers_do(*arguments);
  arguments->memory = MemoryKind::FOREIGN;
  std::vector<CaseGroup> groups = plan_cases(*arguments);
  std::ofstream json;
  if (team.is_first()) json = open_json(*arguments);
  const MeasureOptions options{.runner = runner_of(peer),
                               .timing = arguments->timing,
                               .check = arguments->check ? CheckValues::YES : CheckValues::NO,
                               .placing = {.num_hosts = team.num_hosts(),
                                           .num_namespaces = arguments->workers.num_namespaces,
                                           .rate = arguments->workers.rate}};
  return measure_and_report(fmt::format("{} ({}), {}", peer.name, peer.version, peer.algorithm),
                            *arguments, options, team, std::move(groups), json);
}

}  // namespace crossdevice::bench
