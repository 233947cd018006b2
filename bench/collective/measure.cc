// SPDX-License-Identifier: Apache-2.0
/// Runs cases, their checks and their limits.
#include "collective/measure.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "crossdevice/device/host_thread_pool.h"

#include "collective/bandwidth.h"
#include "collective/gpu_contenders.h"
#include "collective/limit.h"
#include "collective/sample.h"

namespace crossdevice::bench {

namespace {

// Lining up leaves workers as far apart as one small reduction takes: some 0.5 us on one machine, some 50 us across several. Where a call
// takes no more than some ten times that, many are made; their buffers together stay in a core's own cache on one machine.
constexpr std::size_t kSampleBytes = std::size_t{256} << 10U;
constexpr std::size_t kSampleBytesAcrossHosts = std::size_t{4} << 20U;

/// The buffers of all calls that one sample makes, so that each call finds its inputs rewritten.
using Sets = std::vector<CaseBuffers>;

std::size_t check_values(const Case& test_case, CaseBuffers& buffers, Placement placement,
                         const MeasureOptions& options) {
  buffers.rewrite_inputs();
  buffers.poison_outputs(placement);
  options.runner.run(test_case, buffers, placement);
  return buffers.count_wrong(placement);
}

Sets make_sets(const Case& test_case, const Team& team, OwnerThreads& owners) {
  const std::size_t num_calls = calls_per_sample(test_case, team);
  Sets sets;
  sets.reserve(num_calls);
  for (std::size_t i = 0; i < num_calls; ++i) sets.emplace_back(test_case, owners);
  return sets;
}

std::vector<Limit> make_limits(const Case& test_case, const Sets& sets, Placement placement,
                               const Team& team) {
  std::vector<Limit> limits;
  if (team.num_hosts() > 1) return limits;
  const LimitThreads threads =
      team.num_workers() > 1 && team.num_local_workers() >= HostThreadPool::instance().num_threads()
          ? LimitThreads::CALLER
          : LimitThreads::POOL;
  limits.reserve(sets.size());
  for (const CaseBuffers& buffers : sets)
    limits.emplace_back(test_case, buffers, placement, threads);
  return limits;
}

Contender contender_of(const Case& test_case, Sets& sets, Placement placement,
                       const MeasureOptions& options) {
  return {.prepare =
              [&sets] {
                for (CaseBuffers& buffers : sets) buffers.rewrite_inputs();
              },
          .run =
              [&test_case, &sets, &options, placement] {
                for (const CaseBuffers& buffers : sets) {
                  options.runner.run(test_case, buffers, placement);
                }
              },
          .calls = sets.size()};
}

Contender contender_of(const std::vector<Limit>& limits, Walk walk, OwnerThreads& owners) {
  return {.prepare =
              [&limits, &owners] {
                for (const Limit& limit : limits) limit.prepare(owners);
              },
          .run =
              [&limits, walk] {
                for (const Limit& limit : limits) limit.run(walk);
              },
          .calls = limits.size()};
}

/// What is known before it is timed.
Row make_row(const Case& test_case, Sets& sets, Placement placement, const MeasureOptions& options,
             Team& team) {
  Row row;
  row.test_case = test_case;
  row.ops = options.runner.name;
  row.algorithm = options.runner.algorithm;
  row.placement = placement;
  row.placing = options.placing;
  if (options.check == CheckValues::YES) {
    row.wrong = team.total(check_values(test_case, sets[0], placement, options));
  }
  return row;
}

/// What is timed ends when the results are there.
Contender contender_on_gpus(const Case& test_case, Sets& sets, std::function<void()> run) {
  return {.prepare =
              [&test_case, &sets] {
                for (CaseBuffers& buffers : sets) buffers.rewrite_inputs();
                wait_for_gpus(test_case.devices);
              },
          .run = std::move(run),
          .calls = sets.size()};
}

/// The same for the operation, whose calls return when they are enqueued.
Contender contender_on_gpus(const Case& test_case, Sets& sets, Placement placement,
                            const MeasureOptions& options) {
  Contender contender = contender_of(test_case, sets, placement, options);
  return contender_on_gpus(test_case, sets, [run = std::move(contender.run), &test_case] {
    run();
    wait_for_gpus(test_case.devices);
  });
}

/// The rows of all cases in one placement, on GPUs.
std::vector<Row> measure_on_gpus(std::span<const Case> cases, std::span<Sets> sets,
                                 Placement placement, const std::string& relative_limit,
                                 const MeasureOptions& options, Team& team) {
  std::vector<Row> rows;
  if (placement == Placement::IN_PLACE && !cases[0].can_run_in_place()) return rows;
  std::vector<Contender> contenders;
  rows.reserve(cases.size());
  contenders.reserve(cases.size() + 2);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    rows.push_back(make_row(cases[c], sets[c], placement, options, team));
    contenders.push_back(contender_on_gpus(cases[c], sets[c], placement, options));
  }
  const GpuCopyLimit copies(sets[0][0]);
  contenders.push_back(contender_on_gpus(cases[0], sets[0], [&copies, &sets, &cases] {
    for (std::size_t i = 0; i < sets[0].size(); ++i) copies.enqueue();
    wait_for_gpus(cases[0].devices);
  }));
  std::vector<std::size_t> with_nccl;  // the cases of the last contenders
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const std::optional<RawNccl> nccl = RawNccl::make(cases[c], options.raw_nccl);
    if (!nccl.has_value()) continue;
    with_nccl.push_back(c);
    contenders.push_back(
        contender_on_gpus(cases[c], sets[c], [nccl = *nccl, &sets, &cases, c, placement] {
          for (const CaseBuffers& buffers : sets[c]) nccl.enqueue(buffers, placement);
          wait_for_gpus(cases[c].devices);
        }));
  }
  const std::vector<TimeStatistics> times = time_interleaved(contenders, options.timing, team);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    rows[c].time = times[c];
    rows[c].limit = c == 0 ? GpuCopyLimit::kName : relative_limit;
    rows[c].limit_gbs =
        c > 0
            ? rows[0].traffic_gbs()
            : gigabytes_per_second(static_cast<double>(copies.traffic_bytes() * team.num_workers()),
                                   times[cases.size()].median_us);
  }
  for (std::size_t i = 0; i < with_nccl.size(); ++i) {
    rows[with_nccl[i]].raw_nccl_us = times[cases.size() + 1 + i].median_us;
  }
  return rows;
}

/// The rows of all cases in one placement; empty where the first case has none.
std::vector<Row> measure_placement(std::span<const Case> cases, std::span<Sets> sets,
                                   Placement placement, const std::string& relative_limit,
                                   const MeasureOptions& options, OwnerThreads& owners,
                                   Team& team) {
  std::vector<Row> rows;
  if (!cases[0].devices.all_host()) {
    return measure_on_gpus(cases, sets, placement, relative_limit, options, team);
  }
  if (placement == Placement::IN_PLACE && !cases[0].can_run_in_place()) return rows;
  const std::vector<Limit> limits = make_limits(cases[0], sets[0], placement, team);
  std::vector<Contender> contenders;
  rows.reserve(cases.size());
  contenders.reserve(cases.size() + 2);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    rows.push_back(make_row(cases[c], sets[c], placement, options, team));
    contenders.push_back(contender_of(cases[c], sets[c], placement, options));
  }
  if (!limits.empty()) {
    for (const Walk walk : {Walk::ONE_STREAM, Walk::FOUR_STREAMS}) {
      contenders.push_back(contender_of(limits, walk, owners));
    }
  }

  const std::vector<TimeStatistics> times = time_interleaved(contenders, options.timing, team);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    rows[c].time = times[c];
    if (c > 0) {
      rows[c].limit = relative_limit;
      rows[c].limit_gbs = rows[0].traffic_gbs();
    } else if (!limits.empty()) {
      const double limit_us =
          std::min(times[cases.size()].median_us, times[cases.size() + 1].median_us);
      const std::size_t bytes = limits[0].traffic_bytes() * team.num_workers();
      rows[c].limit = Limit::name(placement);
      rows[c].limit_gbs = gigabytes_per_second(static_cast<double>(bytes), limit_us);
    }
  }
  return rows;
}

}  // namespace

std::size_t calls_per_sample(const Case& test_case, const Team& team) {
  if (team.num_workers() == 1) return 1;
  const std::size_t room = team.num_hosts() == 1 ? kSampleBytes : kSampleBytesAcrossHosts;
  return std::clamp<std::size_t>(room / std::max<std::size_t>(1, test_case.memory_bytes()), 1,
                                 kMaxCallsPerSample);
}

std::vector<RowPair> measure_cases(std::span<const Case> cases, const std::string& relative_limit,
                                   const MeasureOptions& options, OwnerThreads& owners,
                                   Team& team) {
  std::vector<Sets> sets;
  sets.reserve(cases.size());
  for (const Case& test_case : cases) sets.push_back(make_sets(test_case, team, owners));
  std::vector<Row> out_of_place = measure_placement(cases, sets, Placement::OUT_OF_PLACE,
                                                    relative_limit, options, owners, team);
  std::vector<Row> in_place =
      measure_placement(cases, sets, Placement::IN_PLACE, relative_limit, options, owners, team);
  std::vector<RowPair> pairs;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    RowPair pair{.out_of_place = std::move(out_of_place[c]), .in_place = std::nullopt};
    if (!in_place.empty()) pair.in_place = std::move(in_place[c]);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace crossdevice::bench
