// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/communicator.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/shared_collectives.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/collective/two_level_collectives.h"
#include "crossdevice/comm/job_news.h"
#include "crossdevice/comm/message_transport.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/full_name.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/operation_kind.h"
#include "crossdevice/core/own_want.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/gpu_device.h"

#include "collective/detail/collective_checks.h"
#include "collective/detail/machine_grid.h"
#include "collective/detail/nccl_collectives.h"

namespace crossdevice {
namespace {

/// Of workers on one machine. Null, on all of them: they cannot map each other's memory, as where they are not one user's processes.
std::unique_ptr<CollectiveEngine> make_shared_engine(const std::shared_ptr<Cluster>& cluster,
                                                     const Deadline& deadline) {
  std::unique_ptr<CollectiveEngine> engine;
  try {
    engine = std::make_unique<SharedCollectives>(cluster, deadline);
  } catch (const FailedPreconditionError& error) {  // which all have heard
    if (detail::is_anybody_strict(*cluster, deadline)) throw;
    detail::warn_of_messages(error.what());
    return nullptr;
  }
  if (cluster->rank() == 0) {
    const std::string message =
        fmt::format("all-reduce by shared_memory, in one pass: all {} workers are on one machine",
                    cluster->num_workers());
    log_once(message, LogSeverity::INFO, message);
  }
  return engine;
}

/// The other engines say what they have chosen where they know what the links are worth.
std::unique_ptr<CollectiveEngine> make_engine(const std::shared_ptr<Cluster>& cluster,
                                              const Deadline& deadline) {
  if (cluster->num_local_workers() == cluster->num_workers()) {
    if (std::unique_ptr<CollectiveEngine> engine = make_shared_engine(cluster, deadline)) {
      return engine;
    }
  }
  const std::vector<int> machines = machines_of(*cluster);
  std::unique_ptr<Transport> transport = make_message_transport(cluster, deadline);
  if (has_two_levels(machines)) {
    return std::make_unique<TwoLevelCollectives>(cluster, std::move(transport), machines, deadline);
  }
  if (cluster->rank() == 0 && cluster->num_local_workers() != cluster->num_workers()) {
    log_once(
        "flat", LogSeverity::INFO,
        "all workers exchange messages: most machines have one worker each, or one has more than "
        "twice as many as another");
  }
  return std::make_unique<TransportCollectives>(cluster, std::move(transport), deadline);
}

/// Where an engine reaches tensors: on hosts, or on one GPU.
struct Place {
  Device device = Device("CPU:0");
  const detail::GpuDevice* gpu = nullptr;  ///< null: every host device

  [[nodiscard]] bool has(const Tensor& tensor) const {
    if (tensor.device().is_host()) return gpu == nullptr;
    return gpu != nullptr && &detail::GpuDevice::of(tensor.device()) == gpu;
  }
};

/// A tensor where the engine reaches it: itself, or, where it lies elsewhere, one of the pool in its place. Lives no longer than what it was given.
class Side {
 public:
  enum class Holds : bool { NOTHING, ITS_ELEMENTS };
  Side(const Place& place, const Tensor& given, Holds holds, const detail::WaitLimit& limit)
      : given_(given), is_there_(!given || place.has(given)) {
    if (is_there_) return;
    stand_in_ = holds == Holds::ITS_ELEMENTS
                    ? copy_to_device(given_, place.device, limit)
                    : Tensor::empty(given_.dtype(), given_.shape(), place.device);
  }
  /// An output, which may be the input that `input` stands for.
  Side(const Place& place, const Tensor& given, const Side& input)
      : given_(given), is_there_(!given || place.has(given)) {
    if (is_there_) return;
    const bool is_input = given_.data() == input.given_.data() &&
                          given_.dtype() == input.given_.dtype() &&
                          given_.num_elements() == input.given_.num_elements();
    stand_in_ =
        is_input ? input.stand_in_ : Tensor::empty(given_.dtype(), given_.shape(), place.device);
  }
  [[nodiscard]] const Tensor& tensor() const { return is_there_ ? given_ : stand_in_; }
  /// Whether there was something to wait for.
  [[nodiscard]] bool put_back(const detail::WaitLimit& limit) const {
    if (!is_there_) copy(given_, stand_in_, limit);
    return !is_there_;
  }

 private:
  const Tensor& given_;
  bool is_there_;
  Tensor stand_in_;
};

}  // namespace

struct Communicator::State {
  std::shared_ptr<Cluster> cluster;
  std::unique_ptr<CollectiveEngine> engine;
  std::optional<detail::JobNews> news;  // set; for copies, which wait for streams
  /// Null, on all workers: everything is done on hosts.
  std::unique_ptr<detail::NcclCollectives> nccl;
  Place hosts;
  Place gpu;
  std::mutex mutex;  // a call
  std::uint64_t num_calls = 0;

  struct Call : detail::NcclCall {
    const detail::OperationKind& kind;
  };
  /// Numbers the calls that all workers make.
  [[nodiscard]] Call call(const detail::OperationKind& kind, ReduceOp op,
                          const CommunicatorOptions& options) {
    // Refused like a wrong argument: it is no operation that fails.
    if (nccl != nullptr) nccl->require_usable();
    const std::optional<double> timeout_seconds = options.timeout_seconds.has_value()
                                                      ? options.timeout_seconds
                                                      : environment().default_timeout_seconds;
    return {{.request = {.kind = kind.name,
                         .sequence = ++num_calls,
                         .op = op,
                         .deadline = Deadline::after_timeout_seconds(timeout_seconds),
                         .deterministic = options.deterministic},
             .timeout_seconds = timeout_seconds},
            kind};
  }
  /// `body()` as one operation: a bar, and counted. `tensor`: this worker's input; null: there is none. `is_in_place`: an output lies in it.
  template <class Body>
  void run(const Call& call, const Tensor& tensor, bool is_in_place, Body body) const {
    const std::size_t size_bytes = tensor ? tensor.size_bytes() : 0;
    const TraceSpan span(call.kind.name.data(), "operation", [&] {
      TraceArguments about{.sequence = call.request.sequence, .num_bytes = size_bytes};
      if (tensor) {
        about.dtype = to_string(tensor.dtype());
        about.tracks = &Devices(tensor.device()).trace_tracks();
      }
      return about;
    });
    try {
      detail::run_counted(call.kind, size_bytes, body);
    } catch (...) {
      const OperationRecord operation{.kind = call.request.kind,
                                      .sequence = call.request.sequence,
                                      .num_values = tensor ? std::uint64_t{1} : 0,
                                      .size_bytes = size_bytes};
      std::rethrow_exception(detail::error_of(std::current_exception(), operation,
                                              call.timeout_seconds,
                                              {.may_be_written = is_in_place}));
    }
  }
  /// Of the call's copies.
  [[nodiscard]] detail::WaitLimit limit_of(const Call& call) const {
    return {.deadline = call.request.deadline, .interrupter = &*news};
  }
  /// Equal on all workers for equal calls: where tensors lie does not count.
  [[nodiscard]] bool takes_nccl() const { return nccl != nullptr; }
  [[nodiscard]] bool takes_nccl(ReduceOp op, DType dtype,
                                const CommunicatorOptions& options) const {
    return nccl != nullptr && !options.deterministic && nccl->can_reduce(op, dtype);
  }
  /// `work()` by the hosts' engine. Compared like what NCCL does, so that a worker that would do it in the other way than the others is found.
  template <class Work>
  void on_hosts(const Call& call, const GroupOperationInfo& operation, Work work) const {
    if (nccl == nullptr) return work();
    nccl->begin_on_hosts(call, operation);
    try {
      work();
    } catch (...) {
      nccl->fail_on_hosts(std::current_exception());
    }
    nccl->end_on_hosts();
  }
  /// Behind a call of NCCL that has waited for its output: that may have been for an abort, which the watchdog has counted.
  void require_done(bool is_by_nccl, bool has_waited) const {
    if (is_by_nccl && has_waited) nccl->require_usable();
  }
  /// `work(input, output)` with what stands for them where they are reached; `output` null: there is none. A copy that fails is no call yet, so that the
  /// others' calls are still compared with the right one of this worker.
  template <class Work>
  void with_sides(const Call& call, bool is_by_nccl, const Tensor& input, const Tensor& output,
                  int root, Work work) {
    bool has_waited = false;
    run(call, input, output && overlaps(input, output), [&] {
      const Place& place = is_by_nccl ? gpu : hosts;
      const detail::WaitLimit limit = limit_of(call);
      const Side from(place, input, Side::Holds::ITS_ELEMENTS, limit);
      const Side to(place, output, from);
      if (is_by_nccl) {
        work(from.tensor(), to.tensor());
      } else {
        on_hosts(call, detail::operation_of(call.request, input, root),
                 [&] { work(from.tensor(), to.tensor()); });
      }
      has_waited = to.put_back(limit.behind_others());
    });
    require_done(is_by_nccl, has_waited);
  }
};

Communicator::Communicator(std::shared_ptr<Cluster> cluster, const Deadline& deadline)
    : Communicator(std::move(cluster), Device("CPU:0"), deadline) {}

Communicator::Communicator(std::shared_ptr<Cluster> cluster, const Device& device,
                           const Deadline& deadline) try
    : state_(std::make_unique<State>()) {
  const bool are_gpus = detail::agree_on_gpus(*cluster, device, deadline);
  state_->engine = make_engine(cluster, deadline);
  state_->news.emplace(*cluster);
  if (are_gpus) {
    state_->nccl = detail::NcclCollectives::make(cluster, device, deadline);
    state_->gpu = {device, &detail::GpuDevice::of(device)};
  }
  state_->cluster = std::move(cluster);
} catch (...) {
  detail::rethrow_own_want("Communicator");
}
Communicator::~Communicator() = default;

int Communicator::rank() const { return state_->cluster->rank(); }
int Communicator::num_workers() const { return state_->cluster->num_workers(); }
bool Communicator::has_nccl() const { return state_->nccl != nullptr; }
CollectiveEngine& Communicator::engine() { return *state_->engine; }

void Communicator::check() const {
  if (state_->nccl != nullptr) state_->nccl->require_usable();
}

void Communicator::all_reduce(ReduceOp op, const Tensor& input, const Tensor& output,
                              const CommunicatorOptions& options) {
  detail::require_reducible(op, input.dtype());
  detail::require_output("all_reduce", output, result_dtype(op, input.dtype()),
                         input.num_elements());
  detail::require_same_or_apart("all_reduce", input, output);
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl(op, input.dtype(), options);
  const State::Call call = state_->call(detail::kAllReduce, op, options);
  state_->with_sides(call, is_by_nccl, input, output, 0, [&](const Tensor& from, const Tensor& to) {
    if (is_by_nccl) return state_->nccl->all_reduce(call, from, to);
    const CollectiveValue value{std::span<const Tensor>(&from, 1), std::span<const Tensor>(&to, 1)};
    state_->engine->all_reduce(call.request, std::span<const CollectiveValue>(&value, 1));
  });
}

void Communicator::reduce_scatter(ReduceOp op, const Tensor& input, const Tensor& output,
                                  const CommunicatorOptions& options) {
  const auto num_ranks = static_cast<std::size_t>(num_workers());
  detail::require_reducible(op, input.dtype());
  detail::require_divisible(input, num_ranks);
  detail::require_output("reduce_scatter", output, result_dtype(op, input.dtype()),
                         input.num_elements() / num_ranks);
  detail::require_own_place("reduce_scatter", output, input, rank());
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl(op, input.dtype(), options);
  const State::Call call = state_->call(detail::kReduceScatter, op, options);
  state_->with_sides(call, is_by_nccl, input, output, 0, [&](const Tensor& from, const Tensor& to) {
    if (is_by_nccl) return state_->nccl->reduce_scatter(call, from, to);
    state_->engine->reduce_scatter(call.request, from, to);
  });
}

void Communicator::all_gather(const Tensor& input, const Tensor& output,
                              const CommunicatorOptions& options) {
  detail::require_output("all_gather", output, input.dtype(),
                         input.num_elements() * static_cast<std::size_t>(num_workers()));
  detail::require_own_place("all_gather", input, output, rank());
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl();
  const State::Call call = state_->call(detail::kAllGather, ReduceOp::SUM, options);
  state_->with_sides(call, is_by_nccl, input, output, 0, [&](const Tensor& from, const Tensor& to) {
    if (is_by_nccl) return state_->nccl->all_gather(call, from, to);
    state_->engine->all_gather(call.request, from, to);
  });
}

void Communicator::broadcast(const Tensor& tensor, int root, const CommunicatorOptions& options) {
  detail::require_root(root, static_cast<std::size_t>(num_workers()));
  detail::require_output("broadcast", tensor, tensor.dtype(), tensor.num_elements());
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl();
  const State::Call call = state_->call(detail::kBroadcast, ReduceOp::SUM, options);
  const bool is_root = root == rank();
  bool has_waited = false;
  state_->run(call, tensor, /*is_in_place=*/!is_root, [&] {
    const detail::WaitLimit limit = state_->limit_of(call);
    const Side here(is_by_nccl ? state_->gpu : state_->hosts, tensor,
                    is_root ? Side::Holds::ITS_ELEMENTS : Side::Holds::NOTHING, limit);
    if (is_by_nccl) {
      state_->nccl->broadcast(call, here.tensor(), root);
    } else {
      state_->on_hosts(call, detail::operation_of(call.request, tensor, root),
                       [&] { state_->engine->broadcast(call.request, here.tensor(), root); });
    }
    has_waited = !is_root && here.put_back(limit.behind_others());
  });
  state_->require_done(is_by_nccl, has_waited);
}

void Communicator::reduce(ReduceOp op, const Tensor& input, const Tensor& output, int root,
                          const CommunicatorOptions& options) {
  detail::require_root(root, static_cast<std::size_t>(num_workers()));
  detail::require_reducible(op, input.dtype());
  const bool is_root = root == rank();
  if (is_root) {
    detail::require_output("reduce", output, result_dtype(op, input.dtype()), input.num_elements());
    detail::require_same_or_apart("reduce", input, output);
  }
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl(op, input.dtype(), options);
  const State::Call call = state_->call(detail::kReduce, op, options);
  state_->with_sides(call, is_by_nccl, input, is_root ? output : Tensor(), root,
                     [&](const Tensor& from, const Tensor& to) {
                       if (is_by_nccl) {
                         return state_->nccl->reduce(call, from, to, root);
                       }
                       state_->engine->reduce(call.request, from, to, root);
                     });
}

void Communicator::gather(const Tensor& input, const Tensor& output, int root,
                          const CommunicatorOptions& options) {
  detail::require_root(root, static_cast<std::size_t>(num_workers()));
  const bool is_root = root == rank();
  if (is_root) {
    detail::require_output("gather", output, input.dtype(),
                           input.num_elements() * static_cast<std::size_t>(num_workers()));
    detail::require_own_place("gather", input, output, rank());
  }
  const std::lock_guard lock(state_->mutex);
  const bool is_by_nccl = state_->takes_nccl();
  const State::Call call = state_->call(detail::kGather, ReduceOp::SUM, options);
  state_->with_sides(call, is_by_nccl, input, is_root ? output : Tensor(), root,
                     [&](const Tensor& from, const Tensor& to) {
                       if (is_by_nccl) {
                         return state_->nccl->gather(call, from, to, root);
                       }
                       state_->engine->gather(call.request, from, to, root);
                     });
}

void Communicator::barrier(const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const State::Call call = state_->call(detail::kBarrier, ReduceOp::SUM, options);
  state_->run(call, Tensor(), /*is_in_place=*/false, [&] {
    state_->on_hosts(call, {.kind = call.request.kind, .sequence = call.request.sequence},
                     [&] { state_->engine->barrier(call.request); });
  });
}

}  // namespace crossdevice
