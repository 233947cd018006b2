// SPDX-License-Identifier: Apache-2.0
/// Why no output byte is written where calls differ. On each machine all announce the same call before anybody goes on. What a worker sends in its column
/// is sent after that, and says which call it belongs to. So whoever has the column's result knows that the workers of all machines mean the same;
/// outputs are written by their owners alone, from such results. A column that has nothing to reduce sends nothing, nor does who is in no column: they
/// write when those beside them have announced that they have theirs. Who is in no column is sent a word by a worker of another machine, so that it hears
/// of the others' call when it is in another one, and waits. A worker that waits on its machine looks at the messages of those that are in another call than it.
///
/// How a failure ends both levels. Every worker of an operation waits either for messages, or for the workers beside it, and then it looks at the transport
/// every few milliseconds. So what one tells the transport (stop()) ends everybody's waiting, with the same words. Who fails on its machine tells the
/// transport first. Then all meet in one inquest of the whole cluster, whichever level they were in.
#include "crossdevice/collective/two_level_collectives.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/collective/shared_direct_reduce.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/own_lateness_error.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/fingerprint.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/core/usable_cores.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/detail/batch_size.h"
#include "collective/detail/call_details.h"
#include "collective/detail/collective_checks.h"
#include "collective/detail/inline_batch.h"
#include "collective/detail/machine_columns.h"
#include "collective/detail/machine_grid.h"
#include "collective/detail/program_cache.h"
#include "collective/detail/scratch_memory.h"
#include "collective/detail/transport_group.h"
#include "collective/detail/tuning_agreement.h"
#include "collective/detail/value_segment.h"

namespace crossdevice {
namespace {

using detail::TransportGroup;
using detail::ValuePiece;
using detail::ValueSegment;

/// How long the transport has to say why a worker on this machine has given up.
constexpr std::chrono::seconds kNewsTime{1};
constexpr std::chrono::milliseconds kNewsAfterDeadline{50};

ReduceOp without_division(ReduceOp op) { return op == ReduceOp::MEAN ? ReduceOp::SUM : op; }

bool has_integer_mean(ReduceOp op, std::span<const CollectiveValue> values) {
  return op == ReduceOp::MEAN &&
         std::any_of(values.begin(), values.end(), [](const CollectiveValue& value) {
           return is_integer(value.inputs[0].dtype());
         });
}

std::byte* element(const Tensor& tensor, std::size_t index) {
  return static_cast<std::byte*>(tensor.data()) + index * size_in_bytes(tensor.dtype());
}

}  // namespace

std::vector<int> machines_of(const Cluster& cluster) {
  std::vector<int> machines;
  machines.reserve(static_cast<std::size_t>(cluster.num_workers()));
  for (int rank = 0; rank < cluster.num_workers(); ++rank) {
    machines.push_back(cluster.ranks_beside(rank).front());
  }
  return machines;
}

bool has_two_levels(std::span<const int> machines) {
  if (machines.empty()) return false;
  const detail::MachineGrid grid = detail::make_machine_grid(machines, 0);
  return grid.num_machines > 1 && grid.most_beside <= 2 * grid.num_columns &&
         2 * machines.size() >= 3 * grid.num_machines;
}

struct TwoLevelCollectives::State {
  State(const std::shared_ptr<Cluster>& of, std::unique_ptr<Transport> transport,
        std::span<const int> machines, const Deadline& deadline)
      : cluster(of),
        grid(detail::make_machine_grid(machines, of->rank())),
        programs(grid.num_machines, grid.machine, grid.column),
        group(std::make_shared<TransportGroup>(of, std::move(transport), deadline,
                                               detail::peers_of_columns(grid, programs))),
        flat(group),
        tuning(detail::column_tuning(group->tuning(), grid)),
        is_single_threaded(detail::usable_cores().size() <= grid.beside.size()),
        transfers(std::make_unique<Transfer[]>(grid.num_machines + grid.targets.size())) {
    meet_beside(deadline);
  }

  std::shared_ptr<Cluster> cluster;
  detail::MachineGrid grid;
  detail::ProgramCache programs;  // of the column
  std::shared_ptr<TransportGroup> group;
  TransportCollectives flat;
  AllReduceTuning tuning;  // of the column
  bool is_single_threaded;
  std::unique_ptr<SharedDirectReduce> beside;  // this machine's workers; none: they share no memory

  // Scratch, kept.
  detail::ScratchMemory
      memory;  // what this worker has reduced, for the column and then for those beside it
  std::vector<Tensor> partial;
  std::vector<CollectiveValue> partial_values;
  std::vector<CollectiveValue> column_values;
  std::vector<const std::byte*> blocks;
  detail::InlineBatch inline_batch;
  std::unique_ptr<Transfer[]> transfers;  // from each machine, then to each target
  ValueSegment segment;
  std::vector<Tensor> shown;
  RemoteTensors alone;  // of a worker without others beside it
  std::byte word{};     // anything
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<DirectReduceTensor> tensors;

  void meet_beside(const Deadline& deadline);
  [[nodiscard]] bool takes_two_levels(const CollectiveRequest& request,
                                      std::span<const CollectiveValue> values,
                                      std::size_t inline_bytes) const;
  template <class Call>
  void on_this_machine(const CollectiveRequest& request, Call call);
  template <class Use>
  void share_beside(const CollectiveRequest& request, const GroupOperationInfo& info,
                    std::span<const Tensor> own, Use use);
  void inform_outsiders(const Deadline& deadline);
  [[noreturn]] void pass_on(const OpError& failure, const Deadline& deadline);
  void reduce_small(const CollectiveRequest& request, const GroupOperationInfo& info,
                    std::span<const CollectiveValue> values, bool is_in_place);
  void exchange(std::size_t block_bytes, const Deadline& deadline);
  void reduce_large(const CollectiveRequest& request, const GroupOperationInfo& info,
                    std::span<const CollectiveValue> values, bool is_in_place);
  void show_inputs(std::span<const CollectiveValue> values);
  void combine_part(ReduceOp op, const Interval& part, std::size_t num_inputs,
                    const RemoteTensors& all);
  void reduce_column(const CollectiveRequest& request, std::size_t num_elements, DType dtype,
                     double divisor);
  void copy_parts(std::span<const CollectiveValue> values, const RemoteTensors& all) const;
  void let_go();

  [[nodiscard]] Interval part(std::size_t place) const {
    if (place >= grid.num_columns) return {};
    return detail::part_of(segment.num_elements, place, grid.num_columns);
  }
  [[nodiscard]] std::byte* block(std::size_t of_machine, std::size_t block_bytes) const {
    return memory.begin() + of_machine * block_bytes;
  }
};

/// Everybody learns whether it has worked everywhere: all take the same way.
void TwoLevelCollectives::State::meet_beside(const Deadline& deadline) {
  std::string trouble;
  try {
    std::vector<RankInfo> names;
    names.reserve(grid.beside.size());
    for (const int rank : grid.beside) names.push_back(cluster->worker(rank));
    beside = std::make_unique<SharedDirectReduce>(cluster->subgroup(grid.beside), names, deadline);
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  for (const std::string& theirs : cluster->all_gather_bytes(trouble, deadline)) {
    if (trouble.empty()) trouble = theirs;
  }
  if (!trouble.empty()) {
    beside.reset();
    if (detail::is_anybody_strict(*cluster, deadline)) throw FailedPreconditionError(trouble);
    return detail::warn_of_messages(trouble);
  }
  beside->while_waiting([this] { group->transport().look(); });
  group->on_failure([this](const std::string& text) { beside->give_up(text); });
  if (cluster->rank() == 0) {
    log(LogSeverity::INFO,
        fmt::format("all-reduce in two levels: {} share memory", detail::describe_rows(grid)));
  }
}

/// Equal on all workers, or their calls differ, which they will notice.
bool TwoLevelCollectives::State::takes_two_levels(const CollectiveRequest& request,
                                                  std::span<const CollectiveValue> values,
                                                  std::size_t inline_bytes) const {
  if (!beside || request.deterministic || has_integer_mean(request.op, values)) return false;
  return detail::is_mesh(grid) || inline_bytes > kSmallBytes;
}

/// Something that the workers of this machine do together.
template <class Call>
void TwoLevelCollectives::State::on_this_machine(const CollectiveRequest& request, Call call) {
  try {
    call();
  } catch (const OpError& failure) {
    pass_on(failure, request.deadline);
  }
}

/// `use` of what all on this machine share.
template <class Use>
void TwoLevelCollectives::State::share_beside(const CollectiveRequest& request,
                                              const GroupOperationInfo& info,
                                              std::span<const Tensor> own, Use use) {
  if (grid.beside.size() > 1) {
    on_this_machine(request, [&] { beside->share(request, info, own, use); });
    return;
  }
  alone.resize(1);
  alone[0].clear();
  for (const Tensor& each : own) {
    alone[0].push_back({each.dtype(), each.shape(), static_cast<const std::byte*>(each.data())});
  }
  use(alone);
}

/// Throws what all workers are to hear of a failure on this machine.
void TwoLevelCollectives::State::pass_on(const OpError& failure, const Deadline& deadline) {
  const StatusCode code = failure.code();
  // Somebody beside this worker has given up and told the transport why, or the control plane has told it: that is on its way.
  const bool is_news = code == StatusCode::UNAVAILABLE || code == StatusCode::ABORTED ||
                       (code == StatusCode::DEADLINE_EXCEEDED && !deadline.has_passed());
  group->transport().look();  // throws what has come, and so does the next one
  if (is_news) {
    // Where the time is over, no longer than an inquest takes.
    const auto now = Deadline::Clock::now();
    std::chrono::nanoseconds patience = kNewsTime;
    if (deadline.moment() < now + kNewsTime)
      patience = deadline.moment() - now + kNewsAfterDeadline;
    group->transport().look_until(Deadline::after(patience));
  }
  std::vector<RankInfo> culprits;
  std::string names;
  for (const RankInfo& culprit : failure.culprits()) {
    if (culprit.rank < 0) continue;  // not of this cluster
    culprits.push_back(culprit);
    names += (names.empty() ? "" : ", ") + to_string(culprit);
  }
  std::string text = fmt::format("on the machine of rank {}: {}", cluster->rank(), failure.what());
  const bool is_own_lateness = code == StatusCode::DEADLINE_EXCEEDED && culprits.size() == 1 &&
                               culprits[0].rank == cluster->rank();
  if (is_own_lateness) {
    throw detail::OwnLatenessError(
        text, {.operation = {}, .culprits = std::move(culprits), .inputs_intact = true});
  }
  if (code == StatusCode::DEADLINE_EXCEEDED && !culprits.empty()) {
    text = "timed out: waiting for " + names;
  } else if (code == StatusCode::UNAVAILABLE && !culprits.empty()) {
    text = names + " is gone";
  }
  throw_op_error(code, text,
                 {.operation = {}, .culprits = std::move(culprits), .inputs_intact = true});
}

void TwoLevelCollectives::State::let_go() {
  partial.clear();
  partial_values.clear();
  column_values.clear();
  shown.clear();
}

// ---------------------------------------------------------------------------------------------- small batches

/// `block_bytes` of this machine to who hears of it from this worker, and the other machines' to their places.
void TwoLevelCollectives::State::exchange(std::size_t block_bytes, const Deadline& deadline) {
  const std::size_t num_machines = grid.num_machines;
  Transport& transport = group->transport();
  TraceSpan span("communicate", "collective",
                 [block_bytes] { return TraceArguments{.num_bytes = block_bytes}; });
  span.set_how(detail::kExchangeReduction.name, {});
  const std::span<Transfer> sends(&transfers[num_machines], grid.targets.size());
  for (std::size_t each = 0; each < sends.size(); ++each) {
    transport.send(grid.targets[each], {block(grid.machine, block_bytes), block_bytes},
                   sends[each]);
  }
  const auto for_each_source = [&](const auto& work) {
    for (std::size_t distance = 1; distance < num_machines; ++distance) {
      work((grid.machine + num_machines - distance) % num_machines);
    }
  };
  for_each_source([&](std::size_t from) {
    transport.receive(grid.sources[from], {block(from, block_bytes), block_bytes}, transfers[from]);
  });
  for_each_source([&](std::size_t from) { transport.wait(transfers[from], deadline); });
  // Sends too: the block is filled anew by the next operation.
  for (Transfer& each : sends) transport.wait(each, deadline);
  while (transport.take_completed() != nullptr) {
  }
}

/// All workers do the same with the same values, in the order of machines, so all get the same bits.
void TwoLevelCollectives::State::reduce_small(const CollectiveRequest& request,
                                              const GroupOperationInfo& info,
                                              std::span<const CollectiveValue> values,
                                              bool is_in_place) {
  std::size_t block_bytes = 0;
  for (const CollectiveValue& value : values) {
    block_bytes += detail::inline_bytes_of(value.inputs[0]);
  }
  std::byte* const all = memory.reserve(block_bytes * grid.num_machines);
  std::byte* at = all + grid.machine * block_bytes;
  let_go();
  partial.reserve(values.size());  // spans point into it
  partial_values.reserve(values.size());
  column_values.reserve(values.size());
  for (const CollectiveValue& value : values) {
    const Tensor& first = value.inputs[0];
    const Shape shape({first.num_elements()});
    partial.push_back(Tensor::view(static_cast<void*>(at), first.dtype(), shape, first.device()));
    at += detail::inline_bytes_of(first);
    const std::span<const Tensor> result(&partial.back(), 1);
    partial_values.push_back({value.inputs, result});
    column_values.push_back({result, value.outputs});
  }
  CollectiveRequest on_machine = request;
  on_machine.op = without_division(request.op);
  Fingerprint fingerprint;  // of the call that this is a part of
  fingerprint.add(info.fingerprint);
  fingerprint.add(static_cast<std::uint64_t>(request.op));
  on_machine.fingerprint = fingerprint.value();
  on_this_machine(request, [&] { beside->all_reduce(on_machine, partial_values); });
  exchange(block_bytes, request.deadline);
  const TraceSpan unpack = detail::part_span("unpack", [block_bytes] { return block_bytes; });
  blocks.clear();
  for (std::size_t each = 0; each < grid.num_machines; ++each) {
    blocks.push_back(block(each, block_bytes));
  }
  if (is_in_place) group->set_outputs_written();
  (void)direct_reduce(
      {.op = on_machine.op, .tensors = inline_batch.tensors(column_values, blocks)});
  if (request.op != ReduceOp::MEAN) return;
  const auto divisor = static_cast<double>(values[0].inputs.size() * group->num_ranks());
  for (const CollectiveValue& value : values) {
    for (const Tensor& output : value.outputs) {
      divide_elements(output.dtype(), output.data(), output.num_elements(), divisor);
    }
  }
}

// ---------------------------------------------------------------------------------------------- large batches

/// A word to who is in no column. It is waited for at once: what is left of the operation finds no transfer that it does not know.
void TwoLevelCollectives::State::inform_outsiders(const Deadline& deadline) {
  Transport& transport = group->transport();
  for (const int each : grid.outsiders) {
    transport.send(each, {&word, 1}, transfers[0]);
    transport.wait(transfers[0], deadline);
  }
  if (!grid.is_outsider()) return;
  transport.receive(grid.informant(), {&word, 1}, transfers[0]);
  transport.wait(transfers[0], deadline);
}

void TwoLevelCollectives::State::reduce_large(const CollectiveRequest& request,
                                              const GroupOperationInfo& info,
                                              std::span<const CollectiveValue> values,
                                              bool is_in_place) {
  const std::size_t num_inputs = values[0].inputs.size();
  const auto divisor = static_cast<double>(num_inputs * group->num_ranks());
  detail::SegmentCutter cutter(values);
  bool is_any = false;
  while (cutter.next(segment)) {
    const Interval own = part(grid.place);
    const std::size_t size = size_in_bytes(segment.dtype);
    std::byte* const result = memory.reserve(own.count * size);
    show_inputs(values);
    share_beside(request, info, shown, [&](const RemoteTensors& all) {
      const TraceSpan adds = detail::part_span("reduce share", [&] { return own.count * size; });
      combine_part(without_division(request.op), own, num_inputs, all);
    });
    if (!std::exchange(is_any, true)) inform_outsiders(request.deadline);
    // Nobody reads this worker's inputs of the segment any more.
    reduce_column(request, own.count, segment.dtype, divisor);
    const Tensor mine = Tensor::view(static_cast<void*>(result), segment.dtype, Shape({own.count}),
                                     values[0].inputs[0].device());
    share_beside(request, info, std::span<const Tensor>(&mine, 1), [&](const RemoteTensors& all) {
      if (is_in_place) group->set_outputs_written();
      const TraceSpan unpack =
          detail::part_span("unpack", [&] { return segment.num_elements * size; });
      copy_parts(values, all);
    });
  }
  if (!is_any) group->agree(request.deadline);
}

/// The segment's pieces of all inputs.
void TwoLevelCollectives::State::show_inputs(std::span<const CollectiveValue> values) {
  shown.clear();
  for (const ValuePiece& piece : segment.pieces) {
    for (const Tensor& input : values[piece.value].inputs) {
      const void* const begin = element(input, piece.first_element);
      shown.push_back(Tensor::view(begin, segment.dtype, Shape({piece.count}), input.device()));
    }
  }
}

/// This worker's part of the segment of all inputs on this machine, into its own memory.
void TwoLevelCollectives::State::combine_part(ReduceOp op, const Interval& part,
                                              std::size_t num_inputs, const RemoteTensors& all) {
  const std::size_t size = size_in_bytes(segment.dtype);
  const std::size_t inputs_each = num_inputs * grid.beside.size();
  inputs.clear();
  outputs.clear();
  tensors.clear();
  inputs.reserve(segment.pieces.size() * inputs_each);  // spans point into them
  outputs.reserve(segment.pieces.size());
  detail::for_each_piece_in(
      segment, part, [&](const ValuePiece& piece, std::size_t first, std::size_t count) {
        const auto index = static_cast<std::size_t>(&piece - segment.pieces.data());
        const std::size_t first_input = inputs.size();
        for (const std::vector<RemoteTensor>& theirs : all) {
          for (std::size_t i = 0; i < num_inputs; ++i) {
            inputs.push_back(theirs[index * num_inputs + i].data + (first - piece.begin) * size);
          }
        }
        outputs.push_back(memory.begin() + (first - part.begin) * size);
        tensors.push_back({segment.dtype, count,
                           std::span<const void* const>(inputs).subspan(first_input),
                           std::span<void* const>(outputs).last(1)});
      });
  // Without a deadline: all have come, and a part that is missing would be noticed by nobody.
  (void)direct_reduce(
      {.op = op, .tensors = tensors, .share = {.is_single_threaded = is_single_threaded}});
}

/// The same part of all machines, in place.
void TwoLevelCollectives::State::reduce_column(const CollectiveRequest& request,
                                               std::size_t num_elements, DType dtype,
                                               double divisor) {
  if (num_elements == 0) return;
  const std::size_t size = size_in_bytes(dtype);
  const std::size_t size_bytes = num_elements * size;
  const detail::ProgramKey::Kind kind = detail::kind_of(
      choose_all_reduce(grid.num_machines, size_bytes, detail::is_mesh(grid), tuning));
  TraceSpan span("communicate", "collective",
                 [size_bytes] { return TraceArguments{.num_bytes = size_bytes}; });
  span.set_how(detail::algorithm_of(kind).name,
               span.is_open() ? to_string(dtype) : std::string_view());
  const std::shared_ptr<const ScheduleProgram> program =
      programs.find({.kind = kind, .num_elements = num_elements, .element_size = size});
  const ScheduleJob job{.program = program.get(),
                        .op = request.op,
                        .dtype = dtype,
                        .input = memory.begin(),
                        .output = memory.begin(),
                        .divisor = divisor};
  group->executor().run(std::span<const ScheduleJob>(&job, 1), request.deadline);
}

/// The columns' parts into this one's outputs.
void TwoLevelCollectives::State::copy_parts(std::span<const CollectiveValue> values,
                                            const RemoteTensors& all) const {
  const std::size_t size = size_in_bytes(segment.dtype);
  for (std::size_t place = 0; place < grid.num_columns; ++place) {
    const Interval theirs = part(place);
    detail::for_each_piece_in(
        segment, theirs, [&](const ValuePiece& piece, std::size_t first, std::size_t count) {
          const std::byte* const from = all[place][0].data + (first - theirs.begin) * size;
          for (const Tensor& output : values[piece.value].outputs) {
            std::memcpy(element(output, piece.first_element + first - piece.begin), from,
                        count * size);
          }
        });
  }
}

// ---------------------------------------------------------------------------------------------- calls

TwoLevelCollectives::TwoLevelCollectives(const std::shared_ptr<Cluster>& cluster,
                                         std::unique_ptr<Transport> transport,
                                         std::span<const int> machines, const Deadline& deadline) {
  if (!has_two_levels(machines)) {
    throw ValueError(
        "two levels need several machines, none with more than twice as many workers as another, "
        "and at least three workers for two machines");
  }
  state_ = std::make_unique<State>(cluster, std::move(transport), machines, deadline);
}
TwoLevelCollectives::~TwoLevelCollectives() = default;

void TwoLevelCollectives::all_reduce(const CollectiveRequest& request,
                                     std::span<const CollectiveValue> values) {
  if (values.empty()) return;
  State& state = *state_;
  const detail::BatchSize size = detail::require_batch(request, values);
  if (!state.takes_two_levels(request, values, size.inline_bytes)) {
    state.flat.all_reduce(request, values);
    return;
  }
  const GroupOperationInfo info = detail::operation_of(request, values, size);
  const detail::ReductionSpan span(detail::kTwoLevelReduction, size.size_bytes, info.dtype);
  const detail::TellingValues telling(request, values);
  state.group->run(telling.request(), info, [&] {
    if (size.inline_bytes <= kSmallBytes) {
      state.reduce_small(request, info, values, detail::is_in_place(values));
    } else {
      state.reduce_large(request, info, values, detail::is_in_place(values));
    }
  });
  state.let_go();
}

void TwoLevelCollectives::reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                                         const Tensor& output) {
  state_->flat.reduce_scatter(request, input, output);
}
void TwoLevelCollectives::all_gather(const CollectiveRequest& request, const Tensor& input,
                                     const Tensor& output) {
  state_->flat.all_gather(request, input, output);
}
void TwoLevelCollectives::broadcast(const CollectiveRequest& request, const Tensor& tensor,
                                    int root) {
  state_->flat.broadcast(request, tensor, root);
}
void TwoLevelCollectives::reduce(const CollectiveRequest& request, const Tensor& input,
                                 const Tensor& output, int root) {
  state_->flat.reduce(request, input, output, root);
}
void TwoLevelCollectives::gather(const CollectiveRequest& request, const Tensor& input,
                                 const Tensor& output, int root) {
  state_->flat.gather(request, input, output, root);
}
void TwoLevelCollectives::barrier(const CollectiveRequest& request) {
  state_->flat.barrier(request);
}
void TwoLevelCollectives::share(const CollectiveRequest& request, std::span<const Tensor> tensors,
                                const std::function<void(const RemoteTensors& all)>& use) {
  state_->flat.share(request, tensors, use);
}

std::string TwoLevelCollectives::explain_all_reduce(std::size_t size_bytes) const {
  const State& state = *state_;
  std::string flat = state.flat.explain_all_reduce(size_bytes);
  const std::size_t num_machines = state.grid.num_machines;
  const bool is_small = size_bytes <= kSmallBytes;
  if (!state.beside || (is_small && !detail::is_mesh(state.grid))) return flat;
  std::string column;
  if (is_small) {
    column = "exchange";
    if (state.tuning.links.has_value()) {
      const double seconds = predict_all_reduce_seconds(AllReduceAlgorithm::EXCHANGE, num_machines,
                                                        size_bytes, *state.tuning.links);
      column += fmt::format(", {:.1f} us expected", seconds * 1e6);
    }
  } else {
    const std::size_t part_bytes = (size_bytes - 1) / state.grid.num_columns + 1;
    column = detail::explain(detail::rank_column_algorithms(state.grid, part_bytes, state.tuning),
                             state.tuning);
  }
  return fmt::format("{}: shared memory, then {} column{}: {}; instead, all by messages: {}",
                     detail::describe_rows(state.grid), state.grid.num_columns,
                     state.grid.num_columns == 1 ? "" : "s", column, flat);
}

/// As a column's, which moves one of as many parts as there are columns.
std::vector<PackCandidate> TwoLevelCollectives::rank_pack_sizes() const {
  const State& state = *state_;
  std::vector<PackCandidate> candidates = crossdevice::rank_pack_sizes(
      state.grid.num_machines, detail::is_mesh(state.grid), state.tuning);
  for (PackCandidate& each : candidates) each.size_bytes *= state.grid.num_columns;
  return candidates;
}

TransportCounters TwoLevelCollectives::counters() const { return state_->flat.counters(); }

}  // namespace crossdevice
