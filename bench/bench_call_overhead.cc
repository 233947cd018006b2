// SPDX-License-Identifier: Apache-2.0
// What one call costs before and after the bytes move: 8-byte reductions with prebuilt values, on host devices.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

/// `devices` vectors of two floats.
struct Values {
  explicit Values(std::size_t devices) : storage(devices, std::vector<float>(2, 0.0f)) {
    std::vector<cd::Tensor> components;
    for (std::size_t d = 0; d < devices; ++d) {
      components.push_back(cd::Tensor::view(std::span(storage[d]), "CPU:" + std::to_string(d)));
    }
    value = cd::PerReplica(components);
  }
  std::vector<std::vector<float>> storage;
  cd::PerReplica value;
};

template <class Ops>
void ReduceInto(benchmark::State& state) {
  Values values(static_cast<std::size_t>(state.range(0)));
  Ops ops;
  for (auto _ : state) ops.reduce_into(ReduceOp::SUM, values.value, values.value);
}
BENCHMARK_TEMPLATE(ReduceInto, cd::ReductionToOneDevice)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK_TEMPLATE(ReduceInto, cd::HierarchicalCopyAllReduce)->Arg(2)->Arg(8);

void ReduceOutOfPlace(benchmark::State& state) {
  Values values(static_cast<std::size_t>(state.range(0)));
  cd::ReductionToOneDevice ops;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ops.reduce(ReduceOp::SUM, values.value, values.value));
  }
}
BENCHMARK(ReduceOutOfPlace)->Arg(2)->Arg(8);

void ReduceAsyncAndWait(benchmark::State& state) {
  Values values(2);
  cd::ReductionToOneDevice ops;
  for (auto _ : state) ops.reduce_into_async(ReduceOp::SUM, values.value, values.value).wait();
}
BENCHMARK(ReduceAsyncAndWait);

void BuildPerReplica(benchmark::State& state) {
  Values values(2);
  const cd::Tensor tensor = values.value.values()[0];
  for (auto _ : state) benchmark::DoNotOptimize(cd::PerReplica{tensor});
}
BENCHMARK(BuildPerReplica);

void BuildDestinationsByName(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(cd::Destinations("CPU:1"));
}
BENCHMARK(BuildDestinationsByName);

}  // namespace
