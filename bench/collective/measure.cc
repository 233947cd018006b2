// SPDX-License-Identifier: Apache-2.0
/// Runs cases, their checks and their limits.
#include "collective/measure.h"

#include <algorithm>

#include "collective/bandwidth.h"
#include "collective/limit.h"

namespace crossdevice::bench {

namespace {

void run_batch(const Case& test_case, const CaseBuffers& buffers, Placement placement,
               CrossDeviceOps& ops, const CommunicationOptions& options) {
  const std::span<const PerReplica> inputs = buffers.inputs();
  if (placement == Placement::IN_PLACE) {
    ops.batch_reduce_into(test_case.op, inputs, options);
    return;
  }
  const std::span<const PerReplica> outputs = buffers.outputs(placement);
  std::vector<ValueOutputPair> pairs;
  pairs.reserve(inputs.size());
  for (std::size_t t = 0; t < inputs.size(); ++t) pairs.push_back({inputs[t], outputs[t]});
  ops.batch_reduce_into(test_case.op, std::span<const ValueOutputPair>(pairs), options);
}

std::size_t check_values(const Case& test_case, CaseBuffers& buffers, Placement placement,
                         const MeasureOptions& options) {
  buffers.rewrite_inputs();
  buffers.poison_outputs(placement);
  run_case(test_case, buffers, placement, *options.ops.ops, options.communication);
  return buffers.count_wrong(placement);
}

/// The rows of all cases in one placement; empty where the first case has none.
std::vector<Row> measure_placement(std::span<const Case> cases, std::span<CaseBuffers> buffers,
                                   Placement placement, const std::string& relative_limit,
                                   const MeasureOptions& options, OwnerThreads& owners) {
  std::vector<Row> rows;
  if (placement == Placement::IN_PLACE && !cases[0].can_run_in_place()) return rows;
  const Limit limit(cases[0], buffers[0], placement);
  std::vector<Contender> contenders;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    Row row;
    row.test_case = cases[c];
    row.ops = options.ops.name;
    row.algorithm = options.algorithm;
    row.placement = placement;
    if (options.check == CheckValues::YES) {
      row.wrong = check_values(cases[c], buffers[c], placement, options);
    }
    rows.push_back(std::move(row));
    contenders.push_back({.prepare = [&buffers, c] { buffers[c].rewrite_inputs(); },
                          .run =
                              [&cases, &buffers, &options, placement, c] {
                                run_case(cases[c], buffers[c], placement, *options.ops.ops,
                                         options.communication);
                              }});
  }
  for (const Walk walk : {Walk::ONE_STREAM, Walk::FOUR_STREAMS}) {
    contenders.push_back({.prepare = [&limit, &owners] { limit.prepare(owners); },
                          .run = [&limit, walk] { limit.run(walk); }});
  }

  const std::vector<TimeStatistics> times = time_interleaved(contenders, options.timing);
  const double limit_us =
      std::min(times[cases.size()].median_us, times[cases.size() + 1].median_us);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    rows[c].time = times[c];
    rows[c].limit = c == 0 ? std::string(Limit::name(placement)) : relative_limit;
    rows[c].limit_gbs =
        c == 0 ? gigabytes_per_second(static_cast<double>(limit.traffic_bytes()), limit_us)
               : rows[0].traffic_gbs();
  }
  return rows;
}

}  // namespace

void run_case(const Case& test_case, const CaseBuffers& buffers, Placement placement,
              CrossDeviceOps& ops, const CommunicationOptions& options) {
  const PerReplica& input = buffers.inputs()[0];
  switch (test_case.collective) {
    case Collective::ALL_REDUCE:
    case Collective::REDUCE:
      ops.reduce_into(test_case.op, input, buffers.outputs(placement)[0], options);
      break;
    case Collective::BATCH_REDUCE:
      run_batch(test_case, buffers, placement, ops, options);
      break;
    case Collective::BROADCAST:
      ops.broadcast_into(input.values()[test_case.root], buffers.outputs(placement)[0]);
      break;
    case Collective::GATHER:
      ops.gather_into(input, buffers.outputs(placement)[0], /*axis=*/0, options);
      break;
  }
}

std::vector<RowPair> measure_cases(std::span<const Case> cases, const std::string& relative_limit,
                                   const MeasureOptions& options, OwnerThreads& owners) {
  std::vector<CaseBuffers> buffers;
  buffers.reserve(cases.size());
  for (const Case& test_case : cases) buffers.emplace_back(test_case, owners);
  std::vector<Row> out_of_place =
      measure_placement(cases, buffers, Placement::OUT_OF_PLACE, relative_limit, options, owners);
  std::vector<Row> in_place =
      measure_placement(cases, buffers, Placement::IN_PLACE, relative_limit, options, owners);
  std::vector<RowPair> pairs;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    RowPair pair{.out_of_place = std::move(out_of_place[c]), .in_place = std::nullopt};
    if (!in_place.empty()) pair.in_place = std::move(in_place[c]);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace crossdevice::bench
