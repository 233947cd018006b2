// SPDX-License-Identifier: Apache-2.0
/// Why no output byte is written where calls differ. A message is compared with this worker's operation before it is used, and what a worker sends after
/// its first message depends on what it has received and compared. The result of an all-reduce depends on everybody's first message, so a
/// worker that has it knows that all are in the same operation. Small values come into outputs only from such results. Everything
/// else writes where outputs lie while messages still come; it begins with agree(), after which, by the same argument, all are known
/// to be in the same operation.
#include "crossdevice/collective/transport_collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/reduction_span.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/schedule_executor.h"
#include "crossdevice/core/error.h"

#include "collective/detail/batch_size.h"
#include "collective/detail/call_details.h"
#include "collective/detail/collective_checks.h"
#include "collective/detail/connected_programs.h"
#include "collective/detail/inline_batch.h"
#include "collective/detail/integer_mean.h"
#include "collective/detail/program_cache.h"
#include "collective/detail/recursive_doubling.h"
#include "collective/detail/replica_exchange.h"
#include "collective/detail/row_batch.h"
#include "collective/detail/scratch_memory.h"
#include "collective/detail/shown_tensors.h"
#include "collective/detail/timed_copy.h"
#include "collective/detail/transport_group.h"
#include "collective/detail/tuning_agreement.h"

namespace crossdevice {
namespace {

using detail::ProgramKey;
using Kind = ProgramKey::Kind;

/// Up to here latency counts more than bytes.
constexpr std::size_t kTreeBytes = std::size_t{128} << 10;

/// Whether a batch may be reduced in pairs. It is one row then, as wide as its values; and no partial result is rounded to 16 bits or fewer, so that no value
/// is lost by an algorithm that the links' measurement has chosen. (The order of additions is another one than EXCHANGE's.)
bool may_double(const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  const DType dtype = values[0].inputs[0].dtype();
  const bool is_small_float = is_floating(dtype) && size_in_bytes(dtype) <= 2;
  const bool is_integer_mean = request.op == ReduceOp::MEAN && is_integer(dtype);
  return !request.deterministic && !is_small_float && !is_integer_mean &&
         std::all_of(values.begin(), values.end(), [dtype](const CollectiveValue& value) {
           return value.inputs[0].dtype() == dtype;
         });
}

std::size_t bytes_of(std::span<const detail::BatchRow> rows) {
  std::size_t sum = 0;
  for (const detail::BatchRow& each : rows) sum += each.size_bytes();
  return sum;
}

}  // namespace

struct TransportCollectives::State final : OperationObserver {
  explicit State(std::shared_ptr<detail::TransportGroup> of)
      : group(std::move(of)),
        transport(&group->transport()),
        num_ranks(group->num_ranks()),
        rank(group->rank()),
        is_mesh(group->is_mesh()),
        tuning(group->tuning()),
        programs(*group),
        replicas(*group, programs),
        doubling(*transport),
        transfers(std::make_unique<Transfer[]>(2 * num_ranks)) {}

  std::shared_ptr<detail::TransportGroup> group;
  Transport* transport;
  std::size_t num_ranks;
  std::size_t rank;
  bool is_mesh;

  const AllReduceTuning& tuning;
  /// The last choice, which mostly is the next one: to make it takes as long as much of a small call.
  struct Chosen {
    std::size_t bytes = SIZE_MAX;
    AllReduceAlgorithm algorithm = AllReduceAlgorithm::RING;
  };
  mutable Chosen chosen;
  detail::ConnectedPrograms programs;
  std::vector<std::shared_ptr<const ScheduleProgram>> running;
  std::vector<ScheduleJob> jobs;
  detail::RowBatch batch;
  detail::ReplicaExchange replicas;
  std::size_t divisor = 1;
  bool is_in_place = false;
  const CollectiveRequest* finishing = nullptr;  // whose rows are finished as they complete

  detail::RecursiveDoubling doubling;
  detail::InlineBatch inline_batch;
  std::vector<const std::byte*> blocks;
  std::unique_ptr<Transfer[]> transfers;  // two of each rank
  detail::ScratchMemory scratch;
  detail::ScratchMemory heads;

  // OperationObserver
  [[nodiscard]] bool stop_requested() const override { return false; }
  void tensor_completed(std::size_t row) override {
    if (finishing == nullptr) return;
    if (is_in_place) group->set_outputs_written();
    const detail::BatchRow& done = batch.rows()[row];
    const TraceSpan unpack("unpack", "collective", [&] {
      const Kind kind = all_reduce_kind(*finishing, done.size_bytes());
      return TraceArguments{.num_bytes = done.size_bytes(),
                            .algorithm = detail::algorithm_of(kind).name};
    });
    batch.finish(done, divisor);
  }

  template <class Body>
  void run(const CollectiveRequest& request, const GroupOperationInfo& info, Body body);
  void agree(const Deadline& deadline) { group->agree(deadline); }
  [[nodiscard]] std::optional<AllReduceAlgorithm> small_algorithm(
      const CollectiveRequest& request, std::span<const CollectiveValue> values,
      std::size_t inline_bytes) const;
  [[nodiscard]] AllReduceAlgorithm choose(std::size_t bytes) const;
  [[nodiscard]] Kind all_reduce_kind(const CollectiveRequest& request, std::size_t bytes) const;
  void reduce_inline(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                     std::size_t block_bytes);
  void reduce_by_doubling(const CollectiveRequest& request);
  void reduce_rows(const CollectiveRequest& request);
  void run_job(const ProgramKey& key, ScheduleJob job, const Deadline& deadline);
  void run_reduction(const CollectiveRequest& request, const ProgramKey& key, const Tensor& input,
                     const Interval& wanted, const Tensor* output);

  [[nodiscard]] Transfer& transfer(std::size_t of_rank, bool is_send) const {
    return transfers[2 * of_rank + (is_send ? 1 : 0)];
  }
};

/// Runs an operation so that all workers learn how it failed, and lets go of the caller's tensors.
template <class Body>
void TransportCollectives::State::run(const CollectiveRequest& request,
                                      const GroupOperationInfo& info, Body body) {
  finishing = nullptr;
  group->run(request, info, [&] {
    const auto let_go = [this](State*) {
      batch.clear();
      replicas.clear();
      running.clear();
    };
    const std::unique_ptr<State, decltype(let_go)> rows_in_use(this, let_go);
    body();
  });
}

AllReduceAlgorithm TransportCollectives::State::choose(std::size_t bytes) const {
  if (chosen.bytes != bytes) {
    chosen = {bytes, choose_all_reduce(num_ranks, bytes, is_mesh, tuning)};
  }
  return chosen.algorithm;
}

Kind TransportCollectives::State::all_reduce_kind(const CollectiveRequest& request,
                                                  std::size_t bytes) const {
  if (request.deterministic) return Kind::ALL_REDUCE_SHUFFLE;
  return detail::kind_of(choose(bytes));
}

/// EXCHANGE or DOUBLING, where a whole batch takes one of them; equal on all workers. Nothing: row by row.
std::optional<AllReduceAlgorithm> TransportCollectives::State::small_algorithm(
    const CollectiveRequest& request, std::span<const CollectiveValue> values,
    std::size_t inline_bytes) const {
  if (inline_bytes > kMaxExchangeBytes) return std::nullopt;
  const AllReduceAlgorithm choice = choose(inline_bytes);
  const bool doubles = choice == AllReduceAlgorithm::DOUBLING;
  if (doubles && may_double(request, values)) return choice;
  // Each worker's own values are combined before, where that decides the bits.
  const bool combines_own = request.deterministic && !request.grouping_independent;
  if (!is_mesh || (combines_own && values[0].inputs.size() > 1)) return std::nullopt;
  // Where the links are not known, as all sizes are pinned, they judge nothing: row by row is the nearest to doubling.
  const auto seconds = [&](AllReduceAlgorithm algorithm) {
    return predict_all_reduce_seconds(algorithm, num_ranks, inline_bytes, *tuning.links);
  };
  const bool is_next_best =
      doubles && tuning.links.has_value() &&
      seconds(AllReduceAlgorithm::EXCHANGE) <= seconds(AllReduceAlgorithm::SHUFFLE);
  if (choice != AllReduceAlgorithm::EXCHANGE && !is_next_best) return std::nullopt;
  return AllReduceAlgorithm::EXCHANGE;
}

void TransportCollectives::State::reduce_inline(const CollectiveRequest& request,
                                                std::span<const CollectiveValue> values,
                                                std::size_t block_bytes) {
  const detail::ReductionSpan span(detail::kExchangeReduction, block_bytes,
                                   values[0].inputs[0].dtype());
  std::byte* const memory = scratch.reserve(num_ranks * kMaxExchangeBytes);
  const auto block = [&](std::size_t of_rank) { return memory + of_rank * kMaxExchangeBytes; };
  {
    const TraceSpan pack = detail::part_span("pack", [block_bytes] { return block_bytes; });
    detail::fill_inline_block(values, block(rank));
  }
  for (std::size_t distance = 1; distance < num_ranks; ++distance) {
    const std::size_t to = (rank + distance) % num_ranks;
    const std::size_t from = (rank + num_ranks - distance) % num_ranks;
    transport->send(static_cast<int>(to), {block(rank), block_bytes}, transfer(to, true));
    transport->receive(static_cast<int>(from), {block(from), block_bytes}, transfer(from, false));
  }
  // Sends too: the block is filled anew by the next operation.
  for (std::size_t distance = 1; distance < num_ranks; ++distance) {
    const std::size_t other = (rank + num_ranks - distance) % num_ranks;
    transport->wait(transfer(other, false), request.deadline);
    transport->wait(transfer(other, true), request.deadline);
  }
  while (transport->take_completed() != nullptr) {
  }
  const TraceSpan unpack = detail::part_span("unpack", [block_bytes] { return block_bytes; });
  blocks.clear();
  for (std::size_t each = 0; each < num_ranks; ++each) blocks.push_back(block(each));
  if (is_in_place) group->set_outputs_written();
  (void)direct_reduce({.op = request.op, .tensors = inline_batch.tensors(values, blocks)});
}

/// Small values, which are staged: one row, or none where all are empty.
void TransportCollectives::State::reduce_by_doubling(const CollectiveRequest& request) {
  for (const detail::BatchRow& row : batch.rows()) {
    const detail::ReductionSpan span(detail::kDoublingReduction, row.size_bytes(), row.dtype);
    const auto row_bytes = [&row] { return row.size_bytes(); };
    {
      const TraceSpan pack = detail::part_span("pack", row_bytes);
      batch.fill(row);
    }
    doubling.run({.op = request.op,
                  .dtype = row.dtype,
                  .num_elements = row.num_elements,
                  .elements = row.output,
                  .divisor = static_cast<double>(divisor)},
                 request.deadline);
    if (is_in_place) group->set_outputs_written();
    const TraceSpan unpack = detail::part_span("unpack", row_bytes);
    batch.finish(row, divisor);
  }
}

void TransportCollectives::State::reduce_rows(const CollectiveRequest& request) {
  running.clear();
  jobs.clear();
  const auto rows_bytes = [this] { return bytes_of(batch.rows()); };
  TraceSpan span = detail::part_span("communicate", rows_bytes);
  for (const detail::BatchRow& row : batch.rows()) {
    const std::size_t element_size = size_in_bytes(row.dtype);
    const Kind kind = all_reduce_kind(request, row.size_bytes());
    const detail::ReductionAlgorithm& algorithm = detail::algorithm_of(kind);
    detail::ReductionSpan::count(algorithm, row.size_bytes());
    span.set_how(algorithm.name, span.is_open() ? to_string(row.dtype) : std::string_view());
    running.push_back(programs.find(
        {.kind = kind, .num_elements = row.num_elements, .element_size = element_size},
        request.deadline));
    const bool is_integer_sum = request.op == ReduceOp::MEAN && is_integer(row.dtype);
    jobs.push_back({.program = running.back().get(),
                    .op = is_integer_sum ? ReduceOp::SUM : request.op,
                    .dtype = row.dtype,
                    .input = row.input,
                    .output = row.output,
                    .divisor = static_cast<double>(divisor)});
  }
  if (batch.has_direct_rows()) {
    agree(request.deadline);
    if (is_in_place) group->set_outputs_written();
  }
  {
    const TraceSpan pack = detail::part_span("pack", rows_bytes);
    for (const detail::BatchRow& row : batch.rows()) {
      transport->require_time_left(request.deadline);
      batch.fill(row);
    }
  }
  finishing = &request;
  group->executor().run(jobs, request.deadline, this);
  finishing = nullptr;
}

void TransportCollectives::State::run_job(const ProgramKey& key, ScheduleJob job,
                                          const Deadline& deadline) {
  running.clear();
  running.push_back(programs.find(key, deadline));
  job.program = running.back().get();
  group->executor().run(std::span<const ScheduleJob>(&job, 1), deadline);
}

/// Reduces `input` in memory of its own, and copies what is wanted of the result to `output`, if anything is.
void TransportCollectives::State::run_reduction(const CollectiveRequest& request,
                                                const ProgramKey& key, const Tensor& input,
                                                const Interval& wanted, const Tensor* output) {
  const std::size_t count = input.num_elements();
  const bool is_integer_mean = request.op == ReduceOp::MEAN && is_integer(input.dtype());
  const DType travels_as = is_integer_mean ? detail::kIntegerSumDType : input.dtype();
  const std::size_t size = size_in_bytes(travels_as);
  std::byte* const row = scratch.reserve(count * size);
  const auto* row_input = static_cast<const std::byte*>(input.data());
  if (is_integer_mean) {
    const void* const inputs[] = {input.data()};
    detail::add_integers(input.dtype(), inputs, count, reinterpret_cast<std::uint64_t*>(row));
    row_input = row;
  }
  ProgramKey sized = key;
  sized.num_elements = count;
  sized.element_size = size;
  run_job(sized,
          {.op = is_integer_mean ? ReduceOp::SUM : request.op,
           .dtype = travels_as,
           .input = row_input,
           .output = row,
           .keeps_unwritten = false,
           .divisor = static_cast<double>(num_ranks)},
          request.deadline);
  if (output == nullptr || wanted.count == 0) return;
  const std::byte* const result = row + wanted.begin * size;
  transport->require_time_left(request.deadline);
  if (overlaps(input, *output)) group->set_outputs_written();
  if (is_integer_mean) {
    detail::divide_integer_sums(input.dtype(), reinterpret_cast<const std::uint64_t*>(result),
                                wanted.count, num_ranks, output->data());
  } else {
    detail::copy_in_time(*transport, static_cast<std::byte*>(output->data()), result,
                         wanted.count * size, request.deadline);
  }
}

TransportCollectives::TransportCollectives(std::shared_ptr<Cluster> cluster,
                                           std::unique_ptr<Transport> transport,
                                           const Deadline& deadline)
    : TransportCollectives(std::make_shared<detail::TransportGroup>(
          std::move(cluster), std::move(transport), deadline)) {}
TransportCollectives::TransportCollectives(std::shared_ptr<detail::TransportGroup> group)
    : state_(std::make_unique<State>(std::move(group))) {}
TransportCollectives::~TransportCollectives() = default;

void TransportCollectives::all_reduce(const CollectiveRequest& request,
                                      std::span<const CollectiveValue> values) {
  if (values.empty()) return;
  const std::size_t num_inputs = values[0].inputs.size();
  const detail::BatchSize size = detail::require_batch(request, values);
  State& state = *state_;
  const detail::TellingValues telling(request, values);
  state.run(telling.request(), detail::operation_of(request, values, size), [&] {
    state.is_in_place = detail::is_in_place(values);
    state.divisor = num_inputs * state.num_ranks;
    const std::optional<AllReduceAlgorithm> small =
        state.small_algorithm(request, values, size.inline_bytes);
    if (small == AllReduceAlgorithm::EXCHANGE) {
      state.reduce_inline(request, values, size.inline_bytes);
      return;
    }
    if (request.grouping_independent && num_inputs > 1) {
      state.replicas.run(request, values, state.is_in_place);
      return;
    }
    for (std::size_t done = 0; done < values.size();) {
      done += state.batch.lay_out(request.op, values.subspan(done));
      if (small == AllReduceAlgorithm::DOUBLING) {
        state.reduce_by_doubling(request);
      } else {
        state.reduce_rows(request);
      }
    }
  });
}

void TransportCollectives::reduce_scatter(const CollectiveRequest& request, const Tensor& input,
                                          const Tensor& output) {
  State& state = *state_;
  const std::size_t part = input.num_elements() / state.num_ranks;
  detail::require_reducible(request.op, input.dtype());
  detail::require_divisible(input, state.num_ranks);
  detail::require_output("reduce_scatter", output, result_dtype(request.op, input.dtype()), part);
  const detail::TellingRoot telling(request, input, 0);
  state.run(telling.request(), detail::operation_of(request, input, 0), [&] {
    state.agree(request.deadline);
    const bool is_direct = request.deterministic || input.size_bytes() < detail::kRingBytes;
    state.run_reduction(
        request, {.kind = is_direct ? Kind::REDUCE_SCATTER_DIRECT : Kind::REDUCE_SCATTER_RING},
        input, {.begin = state.rank * part, .count = part}, &output);
  });
}

void TransportCollectives::all_gather(const CollectiveRequest& request, const Tensor& input,
                                      const Tensor& output) {
  State& state = *state_;
  detail::require_output("all_gather", output, input.dtype(),
                         input.num_elements() * state.num_ranks);
  const detail::TellingRoot telling(request, input, 0);
  state.run(telling.request(), detail::operation_of(request, input, 0), [&] {
    state.agree(request.deadline);
    auto* const row = static_cast<std::byte*>(output.data());
    std::byte* const own = row + state.rank * input.size_bytes();
    if (own != input.data()) {
      detail::copy_in_time(*state.transport, own, static_cast<const std::byte*>(input.data()),
                           input.size_bytes(), request.deadline);
    }
    state.run_job({.kind = detail::all_gather_kind(output.size_bytes()),
                   .num_elements = output.num_elements(),
                   .element_size = size_in_bytes(output.dtype())},
                  {.dtype = output.dtype(), .input = row, .output = row}, request.deadline);
  });
}

void TransportCollectives::broadcast(const CollectiveRequest& request, const Tensor& tensor,
                                     int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  detail::require_output("broadcast", tensor, tensor.dtype(), tensor.num_elements());
  const detail::TellingRoot telling(request, tensor, root);
  state.run(telling.request(), detail::operation_of(request, tensor, root), [&] {
    state.agree(request.deadline);
    auto* const row = static_cast<std::byte*>(tensor.data());
    if (static_cast<std::size_t>(root) != state.rank) state.group->set_outputs_written();
    const bool is_tree = tensor.size_bytes() < kTreeBytes;
    state.run_job({.kind = is_tree ? Kind::BROADCAST_TREE : Kind::BROADCAST_CHAIN,
                   .num_elements = tensor.num_elements(),
                   .element_size = size_in_bytes(tensor.dtype()),
                   .root = static_cast<std::size_t>(root)},
                  {.dtype = tensor.dtype(), .input = row, .output = row}, request.deadline);
  });
}

void TransportCollectives::reduce(const CollectiveRequest& request, const Tensor& input,
                                  const Tensor& output, int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  detail::require_reducible(request.op, input.dtype());
  const bool is_root = static_cast<std::size_t>(root) == state.rank;
  if (is_root) {
    detail::require_output("reduce", output, result_dtype(request.op, input.dtype()),
                           input.num_elements());
  }
  const detail::TellingRoot telling(request, input, root);
  state.run(telling.request(), detail::operation_of(request, input, root), [&] {
    state.agree(request.deadline);
    // A chain combines from far to near, a tree in pairs; in the order of ranks only who gets all at once.
    const bool is_tree = input.size_bytes() < kTreeBytes;
    state.run_reduction(request,
                        {.kind = request.deterministic ? Kind::REDUCE_DIRECT
                                 : is_tree             ? Kind::REDUCE_TREE
                                                       : Kind::REDUCE_CHAIN,
                         .root = static_cast<std::size_t>(root)},
                        input, {.begin = 0, .count = input.num_elements()},
                        is_root ? &output : nullptr);
  });
}

void TransportCollectives::gather(const CollectiveRequest& request, const Tensor& input,
                                  const Tensor& output, int root) {
  State& state = *state_;
  detail::require_root(root, state.num_ranks);
  const bool is_root = static_cast<std::size_t>(root) == state.rank;
  const std::size_t count = input.num_elements();
  if (is_root) {
    detail::require_output("gather", output, input.dtype(), count * state.num_ranks);
  }
  const detail::TellingRoot telling(request, input, root);
  state.run(telling.request(), detail::operation_of(request, input, root), [&] {
    state.agree(request.deadline);
    ScheduleJob job{.dtype = input.dtype(),
                    .input = static_cast<const std::byte*>(input.data()),
                    .first_element = state.rank * count};
    if (is_root) {
      auto* const row = static_cast<std::byte*>(output.data());
      std::byte* const own = row + state.rank * input.size_bytes();
      if (own != input.data()) {
        detail::copy_in_time(*state.transport, own, static_cast<const std::byte*>(input.data()),
                             input.size_bytes(), request.deadline);
      }
      job = {.dtype = input.dtype(), .input = row, .output = row};
    }
    state.run_job({.kind = Kind::GATHER_DIRECT,
                   .num_elements = count * state.num_ranks,
                   .element_size = size_in_bytes(input.dtype()),
                   .root = static_cast<std::size_t>(root)},
                  job, request.deadline);
  });
}

void TransportCollectives::barrier(const CollectiveRequest& request) {
  State& state = *state_;
  state.run(
      request,
      {.kind = request.kind, .fingerprint = request.fingerprint, .sequence = request.sequence},
      [&] { state.agree(request.deadline); });
}

void TransportCollectives::share(const CollectiveRequest& request, std::span<const Tensor> tensors,
                                 const std::function<void(const RemoteTensors& all)>& use) {
  State& state = *state_;
  const std::vector<std::uint64_t> description = detail::describe(tensors);
  const detail::ShownSize own = detail::shown_size(description, tensors);
  RemoteTensors all(state.num_ranks);
  state.run(request,
            {.kind = request.kind,
             .reduce_op = request.op,
             .fingerprint = request.fingerprint,
             .sequence = request.sequence},
            [&] {
              std::byte* const sizes = state.heads.reserve(state.num_ranks * sizeof own);
              std::memcpy(sizes + state.rank * sizeof own, &own, sizeof own);
              state.run_job(
                  {.kind = Kind::ALL_GATHER_DIRECT, .num_elements = state.num_ranks * sizeof own},
                  {.dtype = DType::UINT8, .input = sizes, .output = sizes}, request.deadline);
              std::vector<detail::ShownSize> everybodys(state.num_ranks);
              std::memcpy(everybodys.data(), sizes, state.num_ranks * sizeof own);
              const std::vector<Interval> parts = detail::place_shown(everybodys);
              const std::size_t total = parts.back().end();
              std::byte* const row = state.scratch.reserve(total);
              state.transport->require_time_left(request.deadline);
              detail::write_shown(description, tensors, row + parts[state.rank].begin);
              const ScheduleProgram program = compile_schedule(
                  total < detail::kRingBytes && state.is_mesh ? direct_all_gather_schedule(parts)
                                                              : ring_all_gather_schedule(parts),
                  state.rank, detail::ProgramCache::kPieceBytes);
              const ScheduleJob job{
                  .program = &program, .dtype = DType::UINT8, .input = row, .output = row};
              state.group->executor().run(std::span<const ScheduleJob>(&job, 1), request.deadline);
              for (std::size_t each = 0; each < state.num_ranks; ++each) {
                all[each] = detail::read_shown({row + parts[each].begin, parts[each].count},
                                               everybodys[each], static_cast<int>(each));
              }
            });
  use(all);
}

std::string TransportCollectives::explain_all_reduce(std::size_t size_bytes) const {
  return detail::explain(
      rank_all_reduce_algorithms(state_->num_ranks, size_bytes, state_->is_mesh, state_->tuning),
      state_->tuning);
}
std::vector<PackCandidate> TransportCollectives::rank_pack_sizes() const {
  return crossdevice::rank_pack_sizes(state_->num_ranks, state_->is_mesh, state_->tuning);
}
const AllReduceTuning& TransportCollectives::tuning() const { return state_->tuning; }

TransportCounters TransportCollectives::counters() const { return state_->transport->counters(); }

}  // namespace crossdevice
