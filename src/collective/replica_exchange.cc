// SPDX-License-Identifier: Apache-2.0
/// Why no output byte is written where calls differ: a row's result depends on everybody's first message of it, which is compared with this worker's operation
/// before it is used (transport_collectives.cc).
#include "collective/detail/replica_exchange.h"

#include "crossdevice/collective/reduction_span.h"

namespace crossdevice::detail {
namespace {

using Kind = ProgramKey::Kind;

}  // namespace

void ReplicaExchange::run(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                          bool is_in_place) {
  Transport& transport = group_.transport();
  rows_.begin(request.op, values);
  while (rows_.next()) {
    const std::size_t row_bytes = rows_.num_elements() * size_in_bytes(rows_.dtype());
    const auto num_bytes = [row_bytes] { return row_bytes; };
    const ReductionSpan span(kReplicaExchangeReduction, row_bytes, rows_.dtype());
    {
      const TraceSpan pack = part_span("pack", num_bytes);
      transport.require_time_left(request.deadline);
      rows_.fill();
    }
    scatter_blocks(request.deadline);
    transport.require_time_left(request.deadline);
    rows_.combine();
    gather_results(request.deadline);
    transport.require_time_left(request.deadline);
    if (is_in_place) group_.set_outputs_written();
    const TraceSpan unpack = part_span("unpack", num_bytes);
    rows_.finish();
  }
}

/// Everybody's blocks to their owners, side by side.
void ReplicaExchange::scatter_blocks(const Deadline& deadline) {
  running_.clear();
  jobs_.clear();
  const std::size_t block = rows_.block_elements();
  for (std::size_t owner = 0; owner < group_.num_ranks(); ++owner) {
    running_.push_back(programs_.find({.kind = Kind::GATHER_DIRECT,
                                       .num_elements = block * group_.num_ranks(),
                                       .element_size = size_in_bytes(rows_.dtype()),
                                       .root = owner},
                                      deadline));
    ScheduleJob job{.program = running_.back().get(), .dtype = rows_.dtype()};
    if (owner == group_.rank()) {
      job.input = rows_.received();
      job.output = rows_.received();
    } else {
      job.input = rows_.block_for(owner);
      job.first_element = group_.rank() * block;
    }
    jobs_.push_back(job);
  }
  group_.executor().run(jobs_, deadline);
}

void ReplicaExchange::gather_results(const Deadline& deadline) {
  running_.clear();
  const std::size_t size = size_in_bytes(rows_.type_of_results());
  const std::size_t all = rows_.part_elements() * group_.num_ranks();
  running_.push_back(programs_.find(
      {.kind = all_gather_kind(all * size), .num_elements = all, .element_size = size}, deadline));
  const ScheduleJob job{.program = running_.back().get(),
                        .dtype = rows_.type_of_results(),
                        .input = rows_.results(),
                        .output = rows_.results()};
  group_.executor().run(std::span<const ScheduleJob>(&job, 1), deadline);
}

void ReplicaExchange::clear() {
  rows_.clear();
  running_.clear();
  jobs_.clear();
}

}  // namespace crossdevice::detail
