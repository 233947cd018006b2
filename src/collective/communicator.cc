// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/communicator.h"

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/shared_collectives.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/collective/two_level_collectives.h"
#include "crossdevice/comm/message_transport.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/copy.h"

#include "collective/detail/collective_checks.h"

namespace crossdevice {
namespace {

/// The other engines say what they have chosen where they know what the links are worth.
std::unique_ptr<CollectiveEngine> make_engine(const std::shared_ptr<Cluster>& cluster,
                                              const Deadline& deadline) {
  if (cluster->num_local_workers() == cluster->num_workers()) {
    if (cluster->rank() == 0) {
      const std::string message =
          fmt::format("all-reduce by shared_memory, in one pass: all {} workers are on one machine",
                      cluster->num_workers());
      log_once(message, LogSeverity::INFO, message);
    }
    return std::make_unique<SharedCollectives>(cluster, deadline);
  }
  const std::vector<int> machines = machines_of(*cluster);
  std::unique_ptr<Transport> transport = make_message_transport(cluster, deadline);
  if (has_two_levels(machines)) {
    return std::make_unique<TwoLevelCollectives>(cluster, std::move(transport), machines, deadline);
  }
  if (cluster->rank() == 0) {
    log_once("flat", LogSeverity::INFO,
             "all workers exchange messages: machines have one worker each, or unequal numbers");
  }
  return std::make_unique<TransportCollectives>(cluster, std::move(transport), deadline);
}

/// A tensor where the engines reach it: itself, or, where it lies on a GPU, one of the pool in its place. Lives no longer than what it was given.
class HostSide {
 public:
  enum class Holds : bool { NOTHING, ITS_ELEMENTS };
  HostSide(const Tensor& given, Holds holds) : given_(given) {
    if (is_here()) return;
    stand_in_ = holds == Holds::ITS_ELEMENTS ? copy_to_device(given_, kHost)
                                             : Tensor::empty(given_.dtype(), given_.shape(), kHost);
  }
  /// An output, which may be the input that `input` stands for.
  HostSide(const char* what, const Tensor& given, const HostSide& input) : given_(given) {
    if (is_here()) return;
    detail::require_output(what, given_, given_.dtype(), given_.num_elements());
    const bool is_input = given_.data() == input.given_.data() &&
                          given_.dtype() == input.given_.dtype() &&
                          given_.num_elements() == input.given_.num_elements();
    stand_in_ = is_input ? input.stand_in_ : Tensor::empty(given_.dtype(), given_.shape(), kHost);
  }
  [[nodiscard]] const Tensor& tensor() const { return is_here() ? given_ : stand_in_; }
  void put_back() const {
    if (!is_here()) copy(given_, stand_in_);
  }

 private:
  [[nodiscard]] bool is_here() const { return !given_ || given_.device().is_host(); }
  static constexpr const char* kHost = "CPU:0";
  const Tensor& given_;
  Tensor stand_in_;
};

}  // namespace

struct Communicator::State {
  std::shared_ptr<Cluster> cluster;
  std::unique_ptr<CollectiveEngine> engine;
  std::mutex mutex;  // a call
  std::uint64_t num_calls = 0;

  /// Numbers the calls that all workers make.
  [[nodiscard]] CollectiveRequest request(std::string_view kind, ReduceOp op,
                                          const CommunicatorOptions& options) {
    return {.kind = kind,
            .sequence = ++num_calls,
            .op = op,
            .deadline = Deadline::after_timeout_seconds(
                options.timeout_seconds.has_value() ? options.timeout_seconds
                                                    : environment().default_timeout_seconds),
            .deterministic = options.deterministic};
  }
};

Communicator::Communicator(std::shared_ptr<Cluster> cluster, const Deadline& deadline)
    : state_(std::make_unique<State>()) {
  state_->engine = make_engine(cluster, deadline);
  state_->cluster = std::move(cluster);
}
Communicator::~Communicator() = default;

int Communicator::rank() const { return state_->cluster->rank(); }
int Communicator::num_workers() const { return state_->cluster->num_workers(); }
CollectiveEngine& Communicator::engine() { return *state_->engine; }

void Communicator::all_reduce(ReduceOp op, const Tensor& input, const Tensor& output,
                              const CommunicatorOptions& options) {
  detail::require_reducible(op, input.dtype());
  detail::require_output("all_reduce", output, result_dtype(op, input.dtype()),
                         input.num_elements());
  const std::lock_guard lock(state_->mutex);
  const HostSide from(input, HostSide::Holds::ITS_ELEMENTS);
  const HostSide to("all_reduce", output, from);
  const CollectiveValue value{std::span<const Tensor>(&from.tensor(), 1),
                              std::span<const Tensor>(&to.tensor(), 1)};
  state_->engine->all_reduce(state_->request("all_reduce", op, options),
                             std::span<const CollectiveValue>(&value, 1));
  to.put_back();
}

void Communicator::reduce_scatter(ReduceOp op, const Tensor& input, const Tensor& output,
                                  const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const HostSide from(input, HostSide::Holds::ITS_ELEMENTS);
  const HostSide to("reduce_scatter", output, from);
  state_->engine->reduce_scatter(state_->request("reduce_scatter", op, options), from.tensor(),
                                 to.tensor());
  to.put_back();
}

void Communicator::all_gather(const Tensor& input, const Tensor& output,
                              const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const HostSide from(input, HostSide::Holds::ITS_ELEMENTS);
  const HostSide to("all_gather", output, from);
  state_->engine->all_gather(state_->request("all_gather", ReduceOp::SUM, options), from.tensor(),
                             to.tensor());
  to.put_back();
}

void Communicator::broadcast(const Tensor& tensor, int root, const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const bool is_root = root == rank();
  const HostSide here(tensor, is_root ? HostSide::Holds::ITS_ELEMENTS : HostSide::Holds::NOTHING);
  state_->engine->broadcast(state_->request("broadcast", ReduceOp::SUM, options), here.tensor(),
                            root);
  if (!is_root) here.put_back();
}

void Communicator::reduce(ReduceOp op, const Tensor& input, const Tensor& output, int root,
                          const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const Tensor nowhere;
  const HostSide from(input, HostSide::Holds::ITS_ELEMENTS);
  const HostSide to = root == rank() ? HostSide("reduce", output, from)
                                     : HostSide(nowhere, HostSide::Holds::NOTHING);
  state_->engine->reduce(state_->request("reduce", op, options), from.tensor(), to.tensor(), root);
  to.put_back();
}

void Communicator::gather(const Tensor& input, const Tensor& output, int root,
                          const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  const Tensor nowhere;
  const HostSide from(input, HostSide::Holds::ITS_ELEMENTS);
  const HostSide to = root == rank() ? HostSide("gather", output, from)
                                     : HostSide(nowhere, HostSide::Holds::NOTHING);
  state_->engine->gather(state_->request("gather", ReduceOp::SUM, options), from.tensor(),
                         to.tensor(), root);
  to.put_back();
}

void Communicator::barrier(const CommunicatorOptions& options) {
  const std::lock_guard lock(state_->mutex);
  state_->engine->barrier(state_->request("barrier", ReduceOp::SUM, options));
}

}  // namespace crossdevice
