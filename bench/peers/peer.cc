// SPDX-License-Identifier: Apache-2.0
/// Puts a peer's call where the library's own would stand.
#include "peers/peer.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
#include "peers/flat_buffer.h"
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

/// How a list of tensors is reduced by a library that has no call for lists.
enum class ListCalls : std::uint8_t { ONE_FOR_EACH, ONE_FOR_ALL_PACKED };

/// Takes --packed out of the arguments; the others are crossdevice-bench's.
ListCalls take_list_calls(std::vector<const char*>& arguments) {
  const std::size_t num_packed =
      std::erase_if(arguments, [](std::string_view argument) { return argument == "--packed"; });
  return num_packed > 0 ? ListCalls::ONE_FOR_ALL_PACKED : ListCalls::ONE_FOR_EACH;
}

void call_for_each(const Peer& peer, const CaseBuffers& buffers, Placement placement) {
  for (std::size_t t = 0; t < buffers.inputs().size(); ++t) {
    const Tensor& input = buffers.inputs()[t].values()[0];
    const Tensor& output = buffers.outputs(placement)[t].values()[0];
    peer.all_reduce(static_cast<const float*>(input.data()), static_cast<float*>(output.data()),
                    static_cast<std::size_t>(input.num_elements()));
  }
}

CaseRunner runner_of(const Peer& peer, ListCalls calls) {
  CaseRunner runner{.name = peer.name, .algorithm = peer.algorithm, .run = {}};
  switch (calls) {
    case ListCalls::ONE_FOR_EACH:
      runner.run = [&peer](const Case&, const CaseBuffers& buffers, Placement placement) {
        call_for_each(peer, buffers, placement);
      };
      break;
    case ListCalls::ONE_FOR_ALL_PACKED:
      runner.algorithm += ", packed";
      runner.run = [&peer, flat = std::make_shared<FlatBuffer>()](
                       const Case&, const CaseBuffers& buffers, Placement placement) {
        const std::span<float> packed = flat->pack(buffers.inputs());
        peer.all_reduce(packed.data(), packed.data(), packed.size());
        flat->unpack(buffers.outputs(placement));
      };
      break;
  }
  return runner;
}

/// What there is to pack: not the one flat buffer that lists are held against.
std::vector<CaseGroup> lists_of(std::vector<CaseGroup> groups) {
  for (CaseGroup& group : groups) {
    std::erase_if(group,
                  [](const Case& each) { return each.collective != Collective::BATCH_REDUCE; });
    if (group.empty())
      throw programs::ArgumentError("--packed: there is nothing to pack without --gradients");
  }
  return groups;
}

}  // namespace

int measure_peer(Peer& peer, int argc, const char* const* argv) {
  Team& team = peer.team;
  std::vector<const char*> words(argv, argv + argc);
  const ListCalls calls = take_list_calls(words);
  std::optional<Arguments> arguments =
      parse_arguments(static_cast<int>(words.size()), words.data(),
                      [&team] { return static_cast<int>(team.num_workers()); });
  if (!arguments) return programs::kExitOk;
  require_what_peers_do(*arguments);
  arguments->memory = MemoryKind::FOREIGN;
  std::vector<CaseGroup> groups = plan_cases(*arguments);
  if (calls == ListCalls::ONE_FOR_ALL_PACKED) groups = lists_of(std::move(groups));
  std::ofstream json;
  if (team.is_first()) json = open_json(*arguments);
  const MeasureOptions options{.runner = runner_of(peer, calls),
                               .timing = arguments->timing,
                               .check = arguments->check ? CheckValues::YES : CheckValues::NO,
                               .placing = {.num_hosts = team.num_hosts(),
                                           .num_namespaces = arguments->workers.num_namespaces,
                                           .rate = arguments->workers.rate}};
  return measure_and_report(
      fmt::format("{} ({}), {}", peer.name, peer.version, options.runner.algorithm), *arguments,
      options, team, std::move(groups), json);
}

}  // namespace crossdevice::bench
