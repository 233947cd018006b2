// SPDX-License-Identifier: Apache-2.0
// What a call on GPUs costs the host besides CUDA and NCCL: over GPUs that do nothing, with the number of calls of CUDA that each one makes. Needs no GPU.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/crossdevice.h"

#include "device/null_gpus.h"

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

[[maybe_unused]] const bool kInstalled = (cd::bench::install_null_gpus(8), true);

cd::PerReplica value_on(std::size_t num_gpus, std::size_t count) {
  std::vector<cd::Tensor> components;
  for (std::size_t i = 0; i < num_gpus; ++i) {
    components.push_back(
        cd::Tensor::empty(cd::DType::FLOAT32, {count}, "GPU:" + std::to_string(i)));
  }
  return cd::PerReplica(components);
}

/// The calls of CUDA and NCCL that one iteration makes; the watchdog's questions are not among them.
class CountedCalls {
 public:
  explicit CountedCalls(benchmark::State& state)
      : state_(state), before_(cd::bench::vendor_calls()) {}
  ~CountedCalls() {
    const cd::bench::VendorCalls after = cd::bench::vendor_calls();
    const auto each = [&](std::size_t calls) {
      return benchmark::Counter(static_cast<double>(calls) /
                                static_cast<double>(state_.iterations()));
    };
    state_.counters["launches"] = each(after.launches - before_.launches);
    state_.counters["other_calls"] = each(after.others - before_.others);
  }
  CountedCalls(const CountedCalls&) = delete;
  CountedCalls& operator=(const CountedCalls&) = delete;

 private:
  benchmark::State& state_;
  cd::bench::VendorCalls before_;
};

/// One large tensor, as NCCL takes it where it lies.
template <class Ops>
void reduce_into(benchmark::State& state, ReduceOp op) {
  const cd::PerReplica value = value_on(static_cast<std::size_t>(state.range(0)), 1U << 20U);
  Ops ops(1);
  ops.reduce_into(op, value, value);
  const CountedCalls counted(state);
  for (auto _ : state) ops.reduce_into(op, value, value);
}

void NcclReduceInto(benchmark::State& state) {
  reduce_into<cd::NcclAllReduce>(state, ReduceOp::SUM);
}
BENCHMARK(NcclReduceInto)->Arg(1)->Arg(2)->Arg(4)->Arg(8);

void NcclMeanInto(benchmark::State& state) {
  reduce_into<cd::NcclAllReduce>(state, ReduceOp::MEAN);
}
BENCHMARK(NcclMeanInto)->Arg(1)->Arg(8);

void KernelReduceInto(benchmark::State& state) {
  reduce_into<cd::HierarchicalCopyAllReduce>(state, ReduceOp::SUM);
}
BENCHMARK(KernelReduceInto)->Arg(1)->Arg(2)->Arg(8);

/// 161 tensors of 64 Ki elements.
template <class Ops>
void batch_reduce_into(benchmark::State& state, ReduceOp op,
                       const cd::CommunicationOptions& options) {
  std::vector<cd::PerReplica> batch;
  for (int i = 0; i < 161; ++i) {
    batch.push_back(value_on(static_cast<std::size_t>(state.range(0)), 1U << 16U));
  }
  Ops ops(1);
  ops.batch_reduce_into(op, batch, options);
  const CountedCalls counted(state);
  for (auto _ : state) ops.batch_reduce_into(op, batch, options);
}

void NcclBatchReduceInto(benchmark::State& state) {
  batch_reduce_into<cd::NcclAllReduce>(state, ReduceOp::MEAN, {.bytes_per_pack = 4 << 20});
}
BENCHMARK(NcclBatchReduceInto)->Arg(1)->Arg(8);

void KernelBatchReduceInto(benchmark::State& state) {
  batch_reduce_into<cd::HierarchicalCopyAllReduce>(state, ReduceOp::SUM, {});
}
BENCHMARK(KernelBatchReduceInto)->Arg(1)->Arg(4)->Arg(8);

}  // namespace
