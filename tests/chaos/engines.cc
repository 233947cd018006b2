// SPDX-License-Identifier: Apache-2.0
#include "chaos/engines.h"

#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/pending_batch.h"
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

namespace crossdevice::chaos {
namespace {

CommunicationOptions options_of(const Call& call, double timeout_seconds) {
  return {.bytes_per_pack = call.bytes_per_pack,
          .timeout_seconds = timeout_seconds,
          .deterministic = call.deterministic};
}

std::vector<Tensor> tensors_of(const Mirrored& result) {
  return {result.values().begin(), result.values().end()};
}

/// Ops whose hooks reduce a batch in two halves, and may throw between them.
class OpsOfHalves : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;
  bool halves = false;              // on all workers, or on none
  std::function<void()> on_half{};  // empty: nothing

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    if (on_half) on_half();
    return CollectiveAllReduce::reduce_implementation(op, value, destinations, options);
  }
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    if (!halves) return CollectiveAllReduce::batch_reduce_implementation(op, pairs, options);
    const std::size_t half = pairs.size() / 2;
    std::vector<Mirrored> results =
        CollectiveAllReduce::batch_reduce_implementation(op, pairs.first(half), options);
    if (on_half) on_half();
    for (Mirrored& each :
         CollectiveAllReduce::batch_reduce_implementation(op, pairs.subspan(half), options)) {
      results.push_back(std::move(each));
    }
    return results;
  }
  Mirrored gather_implementation(const PerReplica& value, const Destinations& destinations,
                                 int axis, const CommunicationOptions& options) override {
    if (on_half) on_half();
    return CollectiveAllReduce::gather_implementation(value, destinations, axis, options);
  }
};

class OpsCalls : public CallMaker {
 public:
  OpsCalls(const Plan& plan, const Devices& devices, std::shared_ptr<Cluster> cluster)
      : cluster_(std::move(cluster)),
        ops_(devices, cluster_->num_workers() * static_cast<int>(plan.num_devices),
             {.timeout_seconds = plan.times.join}, cluster_) {
    ops_.halves = plan.fault == Fault::THROW && plan.amount == kInHook;
  }

  void make(CallMemory& memory, double timeout_seconds) override {
    const Call& call = memory.call();
    const CommunicationOptions options = options_of(call, timeout_seconds);
    std::vector<PerReplica> values;
    std::vector<PerReplica> outputs;
    for (std::size_t i = 0; i < call.num_values; ++i) {
      values.emplace_back(memory.inputs()[i]);
      if (!memory.outputs()[i].empty()) outputs.emplace_back(memory.outputs()[i]);
    }
    switch (call.form) {
      case Form::REDUCE:
        if (call.root % 2 == 0) return ops_.reduce_into(call.op, values[0], outputs[0], options);
        memory.outputs()[0] = tensors_of(ops_.reduce(call.op, values[0], values[0], options));
        return;
      case Form::REDUCE_IN_PLACE:
        return ops_.reduce_into(call.op, values[0], values[0], options);
      case Form::BATCH:
        return batch(memory, values, outputs, options);
      case Form::BATCH_IN_PLACE:
        return ops_.batch_reduce_into(call.op, values, options);
      case Form::ASYNCHRONOUS:
        return ops_.reduce_into_async(call.op, values[0], values[0], options).wait();
      case Form::OPS_GATHER:
        memory.outputs()[0] = tensors_of(ops_.gather(values[0], values[0], /*axis=*/0, options));
        return;
      case Form::REDUCE_SCATTER:
      case Form::ALL_GATHER:
      case Form::BROADCAST:
      case Form::ROOTED_REDUCE:
      case Form::ROOTED_GATHER:
      case Form::BARRIER:
        break;
    }
    throw std::logic_error("no form of ops");
  }

  void give_up(const std::string& text) override { cluster_->abort_collective_ops(text); }

  void make_and_give_up(CallMemory& memory, double timeout_seconds, const GivingUp& how) override {
    if (!how.in_hook) return CallMaker::make_and_give_up(memory, timeout_seconds, how);
    ops_.on_half = [how] {
      how.on_giving_up();
      throw std::runtime_error(how.text);
    };
    try {
      make(memory, timeout_seconds);
    } catch (const std::runtime_error& error) {
      // What a program does whose call has failed for a reason of its own.
      cluster_->abort_collective_ops(error.what());
      throw;
    }
  }

 private:
  void batch(CallMemory& memory, const std::vector<PerReplica>& values,
             const std::vector<PerReplica>& outputs, const CommunicationOptions& options) {
    if (memory.call().root % 2 == 0) {
      std::vector<ValueOutputPair> pairs;
      pairs.reserve(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) pairs.push_back({values[i], outputs[i]});
      return ops_.batch_reduce_into(memory.call().op, pairs, options);
    }
    std::vector<ValueDestinationPair> pairs;
    pairs.reserve(values.size());
    for (const PerReplica& value : values) pairs.push_back({value, value});
    const std::vector<Mirrored> results = ops_.batch_reduce(memory.call().op, pairs, options);
    for (std::size_t i = 0; i < results.size(); ++i) memory.outputs()[i] = tensors_of(results[i]);
  }

  std::shared_ptr<Cluster> cluster_;
  OpsOfHalves ops_;
};

class CommunicatorCalls : public CallMaker {
 public:
  CommunicatorCalls(const Plan& plan, std::shared_ptr<Cluster> cluster)
      : cluster_(std::move(cluster)),
        communicator_(cluster_, Deadline::after_timeout_seconds(plan.times.join)) {}

  void make(CallMemory& memory, double timeout_seconds) override {
    const Call& call = memory.call();
    const CommunicatorOptions options{.timeout_seconds = timeout_seconds,
                                      .deterministic = call.deterministic};
    if (call.form == Form::BARRIER) return communicator_.barrier(options);
    const Tensor& input = memory.inputs()[0][0];
    const Tensor& output = memory.outputs()[0][0];
    switch (call.form) {
      case Form::REDUCE:
      case Form::REDUCE_IN_PLACE:
        return communicator_.all_reduce(call.op, input, output, options);
      case Form::REDUCE_SCATTER:
        return communicator_.reduce_scatter(call.op, input, output, options);
      case Form::ALL_GATHER:
        return communicator_.all_gather(input, output, options);
      case Form::BROADCAST:
        return communicator_.broadcast(input, memory.root(), options);
      case Form::ROOTED_REDUCE:
        return communicator_.reduce(call.op, input, output, memory.root(), options);
      case Form::ROOTED_GATHER:
        return communicator_.gather(input, output, memory.root(), options);
      case Form::BATCH:
      case Form::BATCH_IN_PLACE:
      case Form::ASYNCHRONOUS:
      case Form::OPS_GATHER:
      case Form::BARRIER:
        break;
    }
    throw std::logic_error("no form of a communicator");
  }

  void give_up(const std::string& text) override { cluster_->abort_collective_ops(text); }

 private:
  std::shared_ptr<Cluster> cluster_;
  Communicator communicator_;
};

class StrategyCalls : public CallMaker {
 public:
  StrategyCalls(const Plan& plan, const Devices& devices, const std::shared_ptr<Cluster>& cluster)
      : strategy_({.communication_options = {.timeout_seconds = plan.times.join},
                   .devices = devices,
                   .cluster = cluster}) {}

  void make(CallMemory& memory, double timeout_seconds) override {
    const Call& call = memory.call();
    const CommunicationOptions options = options_of(call, timeout_seconds);
    strategy_.run([&](ReplicaContext& context) {
      const std::size_t device =
          context.replica_id_in_sync_group() -
          static_cast<std::size_t>(memory.caller().rank) * memory.caller().num_devices;
      if (device == 0 && !leaves_.text.empty()) {
        std::this_thread::sleep_for(leaves_.after);
        leaves_.on_giving_up();
        throw std::runtime_error(leaves_.text);
      }
      std::vector<Tensor> values;
      values.reserve(call.num_values);
      for (std::size_t i = 0; i < call.num_values; ++i) {
        values.push_back(memory.inputs()[i][device]);
      }
      switch (call.form) {
        case Form::REDUCE:
          memory.outputs()[0][device] = context.all_reduce(call.op, values[0], options);
          return;
        case Form::REDUCE_IN_PLACE:
          return context.all_reduce_into(call.op, values[0], options);
        case Form::BATCH: {
          const std::vector<Tensor> results = context.all_reduce(call.op, values, options);
          for (std::size_t i = 0; i < results.size(); ++i) {
            memory.outputs()[i][device] = results[i];
          }
          return;
        }
        case Form::BATCH_IN_PLACE:
          return context.all_reduce_into(call.op, std::span<const Tensor>(values), options);
        case Form::ASYNCHRONOUS:
        case Form::OPS_GATHER:
        case Form::REDUCE_SCATTER:
        case Form::ALL_GATHER:
        case Form::BROADCAST:
        case Form::ROOTED_REDUCE:
        case Form::ROOTED_GATHER:
        case Form::BARRIER:
          break;
      }
      throw std::logic_error("no form of a strategy");
    });
  }

  void give_up(const std::string& text) override {
    strategy_.run([&](ReplicaContext&) { throw std::runtime_error(text); });
  }

  void make_and_give_up(CallMemory& memory, double timeout_seconds, const GivingUp& how) override {
    leaves_ = how;
    make(memory, timeout_seconds);
  }

 private:
  GivingUp leaves_;  // how the first replica leaves run(); no text: it does not
  MultiWorkerMirroredStrategy strategy_;
};

}  // namespace

void CallMaker::make_and_give_up(CallMemory& memory, double timeout_seconds, const GivingUp& how) {
  const std::jthread other([&] {
    if (how.await_moment) {
      how.await_moment();
    } else {
      std::this_thread::sleep_for(how.after);
    }
    how.on_giving_up();
    give_up(how.text);
  });
  make(memory, timeout_seconds);
}

Devices devices_of(const Plan& plan) {
  std::vector<Device> devices;
  devices.reserve(plan.num_devices);
  for (std::size_t i = 0; i < plan.num_devices; ++i) {
    devices.emplace_back("CPU:" + std::to_string(i));
  }
  return Devices(std::span<const Device>(devices));
}

std::unique_ptr<CallMaker> make_call_maker(const Plan& plan, const Devices& devices,
                                           const std::shared_ptr<Cluster>& cluster) {
  switch (plan.engine) {
    case Engine::OPS:
      return std::make_unique<OpsCalls>(plan, devices, cluster);
    case Engine::COMMUNICATOR:
      return std::make_unique<CommunicatorCalls>(plan, cluster);
    case Engine::STRATEGY:
      break;
  }
  return std::make_unique<StrategyCalls>(plan, devices, cluster);
}

}  // namespace crossdevice::chaos
