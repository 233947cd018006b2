// SPDX-License-Identifier: Apache-2.0
/// What memory costs: blocks and tensors in steady state, first touches, and where blocks begin relative to a page.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/device/copy.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/reduce_kernel.h"
#include "crossdevice/device/tensor.h"

#include "device/detail/host_memory_pool.h"

namespace crossdevice {
namespace {

using detail::HostMemoryPool;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t size_argument(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

void touch(void* block, std::size_t size_bytes) {
  for (std::size_t i = 0; i < size_bytes; i += kPage) static_cast<volatile char*>(block)[i] = 1;
}

/// A block taken and given back, again and again: the fast path. With several threads, of one pool.
void pool_steady_state(benchmark::State& state) {
  static HostMemoryPool& pool = *new HostMemoryPool("bench", 0);
  const std::size_t size_bytes = size_argument(state);
  pool.deallocate(pool.allocate(size_bytes), size_bytes);
  for (auto _ : state) {
    void* block = pool.allocate(size_bytes);
    benchmark::DoNotOptimize(block);
    pool.deallocate(block, size_bytes);
  }
}
BENCHMARK(pool_steady_state)->Arg(64)->Arg(4096)->Arg(1 << 20)->Arg(64 << 20);
BENCHMARK(pool_steady_state)->Arg(4096)->Threads(2)->UseRealTime();

void malloc_steady_state(benchmark::State& state) {
  const std::size_t size_bytes = size_argument(state);
  for (auto _ : state) {
    void* block = std::malloc(size_bytes);
    benchmark::DoNotOptimize(block);
    std::free(block);
  }
}
BENCHMARK(malloc_steady_state)->Arg(64)->Arg(4096)->Arg(1 << 20)->Arg(64 << 20);

/// Sizes that never come twice: every block is searched, cut and merged.
void pool_changing_sizes(benchmark::State& state) {
  HostMemoryPool pool("bench", 0);
  std::mt19937_64 random(1);
  struct Held {
    void* block;
    std::size_t size_bytes;
  };
  std::deque<Held> held;
  for (auto _ : state) {
    const std::size_t size_bytes = 64 * 1024 + random() % (4 * kMiB);
    held.push_back({pool.allocate(size_bytes), size_bytes});
    if (held.size() > 32) {
      pool.deallocate(held.front().block, held.front().size_bytes);
      held.pop_front();
    }
  }
}
BENCHMARK(pool_changing_sizes);

/// A block that was never handed out before, until each of its pages is there.
void pool_first_touch(benchmark::State& state) {
  HostMemoryPool pool("bench", 0);
  const std::size_t size_bytes = size_argument(state);
  for (auto _ : state) {
    void* block = pool.allocate(size_bytes);
    touch(block, size_bytes);
    state.PauseTiming();
    pool.deallocate(block, size_bytes);
    pool.release_cached();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(pool_first_touch)->Arg(1 << 20)->Arg(64 << 20)->Unit(benchmark::kMicrosecond);

/// The same without huge pages: a shared segment that is only mapped.
void small_pages_first_touch(benchmark::State& state) {
  const std::size_t size_bytes = size_argument(state);
  for (auto _ : state) {
    const auto segment = detail::MemorySegment::map(size_bytes, "bench");
    touch(segment->begin(), size_bytes);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(small_pages_first_touch)->Arg(1 << 20)->Arg(64 << 20)->Unit(benchmark::kMicrosecond);

void tensor_empty(benchmark::State& state) {
  const Device device("CPU:0");
  const Shape shape{1024};
  for (auto _ : state) benchmark::DoNotOptimize(Tensor::empty(DType::FLOAT32, shape, device));
}
BENCHMARK(tensor_empty);

void tensor_view(benchmark::State& state) {
  const Device device("CPU:0");
  std::vector<float> elements(1024);
  for (auto _ : state) benchmark::DoNotOptimize(Tensor::view(std::span(elements), device));
}
BENCHMARK(tensor_view);

void copy_between_devices(benchmark::State& state) {
  const Tensor source = Tensor::zeros(DType::UINT8, {state.range(0)}, "CPU:0");
  const Tensor destination = Tensor::zeros(DType::UINT8, {state.range(0)}, "CPU:1");
  for (auto _ : state) copy(destination, source);
  state.SetBytesProcessed(2 * state.iterations() * state.range(0));
}
BENCHMARK(copy_between_devices)->RangeMultiplier(4)->Range(1 << 10, 64 << 20)->UseRealTime();

enum class Begin { STAGGERED, AT_ONE_PLACE };

/// Eight devices, one block each way: sums of eight blocks into eight others, on one thread.
void sum_of_8_blocks(benchmark::State& state, Begin begin, StoreMode stores) {
  constexpr int kNumDevices = 8;
  const std::size_t size_bytes = size_argument(state);
  std::deque<HostMemoryPool> pools;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int device = 0; device < kNumDevices; ++device) {
    pools.emplace_back("bench", begin == Begin::STAGGERED ? device : 0);
    void* input = pools.back().allocate(size_bytes);
    void* output = pools.back().allocate(size_bytes);
    for (void* block : {input, output}) {
      for (std::size_t i = 0; i < size_bytes / sizeof(float); ++i)
        static_cast<float*>(block)[i] = 1.0F;
    }
    inputs.push_back(input);
    outputs.push_back(output);
  }
  const ReduceKernel kernel = find_reduce_kernel(ReduceOp::SUM, DType::FLOAT32);
  const ReducePass pass{.op = ReduceOp::SUM,
                        .dtype = DType::FLOAT32,
                        .inputs = inputs,
                        .outputs = outputs,
                        .first_group = 0,
                        .stores = stores};
  for (auto _ : state) kernel(pass, 0, size_bytes / sizeof(float));
  state.SetBytesProcessed(2 * kNumDevices * state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(sum_of_8_blocks, staggered, Begin::STAGGERED, StoreMode::CACHED)
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20);
BENCHMARK_CAPTURE(sum_of_8_blocks, at_one_place, Begin::AT_ONE_PLACE, StoreMode::CACHED)
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(16 << 20);
BENCHMARK_CAPTURE(sum_of_8_blocks, staggered_streaming, Begin::STAGGERED, StoreMode::STREAMING)
    ->Arg(1 << 20)
    ->Arg(16 << 20);
BENCHMARK_CAPTURE(sum_of_8_blocks, at_one_place_streaming, Begin::AT_ONE_PLACE,
                  StoreMode::STREAMING)
    ->Arg(1 << 20)
    ->Arg(16 << 20);

}  // namespace
}  // namespace crossdevice
