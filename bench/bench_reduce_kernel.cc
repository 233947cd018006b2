// SPDX-License-Identifier: Apache-2.0
// Host kernels against what memory can do: bytes per second count every byte read and every byte written once.
//   bench_reduce_kernel --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice {
namespace {

/// Touched memory at a page boundary.
class Pages {
 public:
  explicit Pages(std::size_t size_bytes) : size_bytes_(size_bytes) {
    data_ = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    std::memset(data_, 0, size_bytes_);
  }
  ~Pages() { munmap(data_, size_bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  std::size_t size_bytes_;
  void* data_;
};

/// N buffers to read and N to write.
class Buffers {
 public:
  Buffers(std::size_t num_buffers, std::size_t size_bytes) {
    for (std::size_t b = 0; b < 2 * num_buffers; ++b)
      pages_.push_back(std::make_unique<Pages>(size_bytes));
    for (std::size_t b = 0; b < num_buffers; ++b) {
      inputs_.push_back(pages_[b]->data());
      outputs_.push_back(pages_[num_buffers + b]->data());
      inputs_as_outputs_.push_back(pages_[b]->data());
    }
  }
  [[nodiscard]] const std::vector<const void*>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<void*>& outputs(bool in_place) const {
    return in_place ? inputs_as_outputs_ : outputs_;
  }

 private:
  std::vector<std::unique_ptr<Pages>> pages_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<void*> inputs_as_outputs_;
};

void count_traffic(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes_per_iteration) * state.iterations());
}

/// Calls body(begin, size) for pieces of [0, size_bytes) on all threads of the pool; `streams` buffers are touched at once.
template <class Body>
void in_parallel(std::size_t size_bytes, std::size_t streams, const Body& body) {
  const std::size_t piece = std::max(std::size_t{128} << 10, (std::size_t{1} << 20) / streams);
  const std::size_t num_pieces = (size_bytes + piece - 1) / piece;
  HostThreadPool::instance().run(num_pieces, [&](std::size_t chunk) {
    body(chunk * piece, std::min(piece, size_bytes - chunk * piece));
  });
}

// ---- one thread ----

/// N inputs to N outputs of `size_bytes` each.
void reduce(benchmark::State& state, ReduceOp op, DType dtype, bool in_place, StoreMode stores) {
  const auto num_inputs = static_cast<std::size_t>(state.range(0));
  const auto size_bytes = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(num_inputs, size_bytes);
  const ReducePass pass{op, dtype, buffers.inputs(), buffers.outputs(in_place), 0, stores};
  const ReduceKernel kernel = find_reduce_kernel(op, dtype);
  for (auto _ : state) {
    kernel(pass, 0, size_bytes / size_in_bytes(dtype));
    benchmark::ClobberMemory();
  }
  count_traffic(state, 2 * num_inputs * size_bytes);
}

void copy(benchmark::State& state, StoreMode stores) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const Buffers buffers(1, size_bytes);
  for (auto _ : state) {
    copy_bytes(buffers.outputs(false)[0], buffers.inputs()[0], size_bytes, stores);
    benchmark::ClobberMemory();
  }
  count_traffic(state, 2 * size_bytes);
}

/// A call with prebuilt arguments: two inputs and two outputs of 8 bytes.
void tiny_call(benchmark::State& state, DType dtype, bool with_look_up) {
  alignas(64) std::byte a[64]{};
  alignas(64) std::byte b[64]{};
  const void* inputs[] = {a, b};
  void* outputs[] = {a, b};
  const ReducePass pass{ReduceOp::SUM, dtype, inputs, outputs, 0, StoreMode::CACHED};
  ReduceKernel kernel = find_reduce_kernel(ReduceOp::SUM, dtype);
  for (auto _ : state) {
    if (with_look_up) kernel = find_reduce_kernel(ReduceOp::SUM, dtype);
    kernel(pass, 0, 8 / size_in_bytes(dtype));
    benchmark::ClobberMemory();
  }
}

// ---- all threads: the limits and what is measured against them ----

void scale_floats(float* data, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i) data[i] *= factor;
}

/// The limit in place: every buffer scaled where it lies, one after the other.
void scale_in_place(benchmark::State& state) {
  const auto num_buffers = static_cast<std::size_t>(state.range(0));
  const auto size_bytes = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(num_buffers, size_bytes);
  for (auto _ : state) {
    for (void* const buffer : buffers.outputs(true)) {
      in_parallel(size_bytes, 1, [&](std::size_t begin, std::size_t size) {
        scale_floats(static_cast<float*>(buffer) + begin / sizeof(float), size / sizeof(float),
                     0.999F);
      });
    }
  }
  count_traffic(state, 2 * num_buffers * size_bytes);
}

/// The limit out of place: every buffer copied past the caches, one after the other.
void stream_copies(benchmark::State& state) {
  const auto num_buffers = static_cast<std::size_t>(state.range(0));
  const auto size_bytes = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(num_buffers, size_bytes);
  for (auto _ : state) {
    for (std::size_t b = 0; b < num_buffers; ++b) {
      in_parallel(size_bytes, 1, [&](std::size_t begin, std::size_t size) {
        copy_bytes(static_cast<std::byte*>(buffers.outputs(false)[b]) + begin,
                   static_cast<const std::byte*>(buffers.inputs()[b]) + begin, size,
                   StoreMode::STREAMING);
      });
    }
  }
  count_traffic(state, 2 * num_buffers * size_bytes);
}

void reduce_in_parallel(benchmark::State& state, DType dtype, bool in_place) {
  const auto num_inputs = static_cast<std::size_t>(state.range(0));
  const auto size_bytes = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(num_inputs, size_bytes);
  const ReducePass pass{ReduceOp::SUM,
                        dtype,
                        buffers.inputs(),
                        buffers.outputs(in_place),
                        0,
                        in_place ? StoreMode::CACHED : StoreMode::STREAMING};
  const ReduceKernel kernel = find_reduce_kernel(ReduceOp::SUM, dtype);
  for (auto _ : state) {
    in_parallel(size_bytes, num_inputs, [&](std::size_t begin, std::size_t size) {
      kernel(pass, begin / size_in_bytes(dtype), size / size_in_bytes(dtype));
    });
  }
  count_traffic(state, 2 * num_inputs * size_bytes);
}

/// What a job costs that does nothing.
void empty_job(benchmark::State& state) {
  HostThreadPool& pool = HostThreadPool::instance();
  const auto num_chunks = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    pool.run(num_chunks, [](std::size_t chunk) { benchmark::DoNotOptimize(chunk); });
  }
}

void register_all() {
  using benchmark::RegisterBenchmark;
  for (const DType dtype : kAllDTypes) {
    const std::string name(to_string(dtype));
    for (const ReduceOp op : kAllReduceOps) {
      if (result_dtype(op, dtype) != dtype || !is_supported(op, dtype)) continue;
      RegisterBenchmark(("reduce/" + std::string(to_string(op)) + "/" + name).c_str(), reduce, op,
                        dtype, true, StoreMode::CACHED)
          ->Args({2, 64 << 10});
    }
    if (!is_supported(ReduceOp::SUM, dtype)) continue;
    if (size_in_bytes(dtype) <= 8)
      RegisterBenchmark(("tiny_call/" + name).c_str(), tiny_call, dtype, false);
    RegisterBenchmark(("in_place/" + name).c_str(), reduce_in_parallel, dtype, true)
        ->ArgsProduct({{2, 4, 8}, {64 << 20}})
        ->UseRealTime();
    RegisterBenchmark(("out_of_place/" + name).c_str(), reduce_in_parallel, dtype, false)
        ->ArgsProduct({{2, 4, 8}, {64 << 20}})
        ->UseRealTime();
  }
  RegisterBenchmark("tiny_call_with_look_up/float32", tiny_call, DType::FLOAT32, true);
  RegisterBenchmark("limit/scale_in_place", scale_in_place)
      ->ArgsProduct({{2, 4, 8}, {64 << 20}})
      ->UseRealTime();
  RegisterBenchmark("limit/stream_copies", stream_copies)
      ->ArgsProduct({{2, 4, 8}, {64 << 20}})
      ->UseRealTime();
  RegisterBenchmark("copy/cached", copy, StoreMode::CACHED)
      ->RangeMultiplier(16)
      ->Range(1 << 10, 64 << 20);
  RegisterBenchmark("copy/streaming", copy, StoreMode::STREAMING)
      ->RangeMultiplier(16)
      ->Range(1 << 10, 64 << 20);
  RegisterBenchmark("empty_job", empty_job)->Arg(1)->Arg(2)->Arg(8)->Arg(64)->UseRealTime();
}

[[maybe_unused]] const bool registered = (register_all(), true);

}  // namespace
}  // namespace crossdevice
