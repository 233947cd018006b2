// SPDX-License-Identifier: Apache-2.0
/// Measures one case: checks the values, then times the operation and its limit in turns.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/nccl_clique.h"

#include "collective/case_buffers.h"
#include "collective/case_runner.h"
#include "collective/interleave.h"
#include "collective/owner_threads.h"
#include "collective/row.h"
#include "collective/team.h"

namespace crossdevice::bench {

enum class CheckValues : bool { NO, YES };

/// What is the same for all cases of a run.
struct MeasureOptions {
  CaseRunner runner;
  InterleaveOptions timing;
  CheckValues check = CheckValues::YES;
  Placing placing{};
  /// Among workers: by which raw NCCL is measured; null: it is not. One process has cliques of its own.
  std::shared_ptr<detail::NcclClique> raw_nccl{};
};

/// How many calls of one case a sample times: one where a call takes long enough, or nobody else takes part.
[[nodiscard]] std::size_t calls_per_sample(const Case& test_case, const Team& team);

/// Each case in both placements where possible. All cases take turns with each other and with the first one's limits. The rows of the first
/// case name the physical limit, where all workers share one machine; those of the others name `relative_limit`, which is the first case.
///
/// The limit of several workers: all of them run the same loop over their own buffers at the same time, and the slowest counts.
/// Small cases of several workers are called many times in a row, each time on other buffers, so that the moment in which the workers begin
/// matters little.
///
/// Ranks    collective over the team: equal cases but for Case::worker, and equal options. The rows are equal on all workers.
/// Errors   as the operations.
[[nodiscard]] std::vector<RowPair> measure_cases(std::span<const Case> cases,
                                                 const std::string& relative_limit,
                                                 const MeasureOptions& options,
                                                 OwnerThreads& owners, Team& team);

}  // namespace crossdevice::bench
