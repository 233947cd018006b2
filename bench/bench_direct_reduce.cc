// SPDX-License-Identifier: Apache-2.0
/// Micro-bench of the in-process engine, each case against its limit, alternating within one run.
///
/// Time is the median of the engine's rounds; the counters say what it is compared with:
///   percent_of_limit   median limit / median engine, in percent (higher is better)
///   traffic_gbs        bytes read and written by the engine per second
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/pack.h"
#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

#include "collective/gradient_list.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kChunkBytes = 256 * 1024;

/// Zeroed memory, touched page by page, in ordinary or in huge pages.
class Buffer {
 public:
  enum class Pages { ORDINARY, HUGE };
  Buffer(std::size_t size_bytes, Pages pages)
      : mapped_bytes_((size_bytes + 4 * kMiB) / (2 * kMiB) * (2 * kMiB)) {
    mapped_ =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    ::madvise(mapped_, mapped_bytes_, pages == Pages::HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(mapped_, 0, mapped_bytes_);
  }
  ~Buffer() { ::munmap(mapped_, mapped_bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] void* data() const { return mapped_; }

 private:
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_;
};

using Buffers = std::vector<std::unique_ptr<Buffer>>;

Buffers make_buffers(std::size_t count, std::size_t size_bytes, Buffer::Pages pages) {
  Buffers buffers;
  for (std::size_t i = 0; i < count; ++i) {
    buffers.push_back(std::make_unique<Buffer>(size_bytes, pages));
  }
  return buffers;
}

/// Calls body(buffer, begin, size) in chunks of all buffers, on the same threads that the engine uses.
template <class Body>
void for_each_chunk(std::size_t num_buffers, std::size_t size_bytes, Body body) {
  const std::size_t per_buffer = (size_bytes + kChunkBytes - 1) / kChunkBytes;
  HostThreadPool::instance().run(num_buffers * per_buffer, [&](std::size_t chunk) {
    const std::size_t begin = chunk % per_buffer * kChunkBytes;
    body(chunk / per_buffer, begin, std::min(kChunkBytes, size_bytes - begin));
  });
}

/// The limit in place: every buffer is multiplied by two, with the engine's own vector instructions.
void scale_in_place(const Buffers& buffers, std::size_t size_bytes) {
  const ReduceKernel kernel = find_reduce_kernel(ReduceOp::SUM, DType::FLOAT32);
  for_each_chunk(
      buffers.size(), size_bytes, [&](std::size_t b, std::size_t begin, std::size_t size) {
        const void* const inputs[] = {buffers[b]->data(), buffers[b]->data()};
        void* const outputs[] = {buffers[b]->data()};
        kernel({.op = ReduceOp::SUM, .dtype = DType::FLOAT32, .inputs = inputs, .outputs = outputs},
               begin / sizeof(float), size / sizeof(float));
      });
}

/// The limit out of place: every buffer is copied past the caches.
void copy_streaming(const Buffers& from, const Buffers& to, std::size_t size_bytes) {
  for_each_chunk(from.size(), size_bytes, [&](std::size_t b, std::size_t begin, std::size_t size) {
    copy_bytes(static_cast<char*>(to[b]->data()) + begin,
               static_cast<const char*>(from[b]->data()) + begin, size, StoreMode::STREAMING);
  });
}

/// One batch and the arrays it points into.
class Batch {
 public:
  void add(std::size_t num_elements, std::size_t offset, const Buffers& inputs,
           const Buffers& outputs) {
    pointers_.push_back(std::make_unique<Pointers>());
    Pointers& pointers = *pointers_.back();
    for (const auto& buffer : inputs)
      pointers.inputs.push_back(static_cast<float*>(buffer->data()) + offset);
    for (const auto& buffer : outputs)
      pointers.outputs.push_back(static_cast<float*>(buffer->data()) + offset);
    tensors_.push_back({DType::FLOAT32, num_elements, pointers.inputs, pointers.outputs});
  }
  void reduce() const {
    const DirectReduceRequest request{.tensors = tensors_, .packs = packs_};
    if (direct_reduce(request) != DirectReduceOutcome::COMPLETED) std::abort();
  }
  void set_packs(std::vector<Pack> packs) { packs_ = std::move(packs); }
  [[nodiscard]] std::vector<TensorSize> sizes() const {
    std::vector<TensorSize> sizes;
    for (const DirectReduceTensor& tensor : tensors_)
      sizes.push_back({tensor.dtype, tensor.num_elements});
    return sizes;
  }

 private:
  struct Pointers {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  std::vector<std::unique_ptr<Pointers>> pointers_;
  std::vector<DirectReduceTensor> tensors_;
  std::vector<Pack> packs_;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Alternates engine and limit, so that both find the same in the caches, and reports their medians.
void compare(benchmark::State& state, const std::function<void()>& engine,
             const std::function<void()>& limit, std::size_t traffic_bytes) {
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    limit();
    engine();
  }
  std::vector<double> engine_seconds;
  std::vector<double> limit_seconds;
  for ([[maybe_unused]] auto iteration : state) {
    limit_seconds.push_back(seconds_of(limit));
    engine_seconds.push_back(seconds_of(engine));
    state.SetIterationTime(engine_seconds.back());
  }
  const double seconds = median(engine_seconds);
  state.counters["engine_ms"] = 1e3 * seconds;
  state.counters["limit_ms"] = 1e3 * median(limit_seconds);
  state.counters["percent_of_limit"] = 100 * median(limit_seconds) / seconds;
  state.counters["traffic_gbs"] = 1e-9 * static_cast<double>(traffic_bytes) / seconds;
}

Buffer::Pages pages_of(const benchmark::State& state, std::size_t argument) {
  return state.range(argument) != 0 ? Buffer::Pages::HUGE : Buffer::Pages::ORDINARY;
}

void in_place_against_scale(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::size_t size_bytes = static_cast<std::size_t>(state.range(1)) * 1024;
  const Buffers buffers = make_buffers(n, size_bytes, pages_of(state, 2));
  Batch batch;
  batch.add(size_bytes / sizeof(float), 0, buffers, buffers);
  compare(
      state, [&] { batch.reduce(); }, [&] { scale_in_place(buffers, size_bytes); },
      2 * n * size_bytes);
}

void out_of_place_against_streaming_copy(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::size_t size_bytes = static_cast<std::size_t>(state.range(1)) * 1024;
  const Buffers inputs = make_buffers(n, size_bytes, pages_of(state, 2));
  const Buffers outputs = make_buffers(n, size_bytes, pages_of(state, 2));
  Batch batch;
  batch.add(size_bytes / sizeof(float), 0, inputs, outputs);
  compare(
      state, [&] { batch.reduce(); }, [&] { copy_streaming(inputs, outputs, size_bytes); },
      2 * n * size_bytes);
}

/// ResNet-50's gradients as one batch; the limit is one tensor of as many bytes.
void resnet50_against_flat(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<std::size_t> counts;
  for (const bench::Gradient& gradient :
       bench::read_gradient_list(CROSSDEVICE_WORKLOADS_DIR "/resnet50.csv")) {
    counts.push_back(gradient.num_elements());
  }
  constexpr std::size_t kAlign =
      16;  // elements: every gradient starts at a cache line, as from an allocator
  std::size_t total = 0;
  std::size_t total_with_gaps = 0;
  for (const std::size_t count : counts) {
    total += count;
    total_with_gaps += (count + kAlign - 1) / kAlign * kAlign;
  }
  const Buffers buffers = make_buffers(n, total_with_gaps * sizeof(float), pages_of(state, 2));
  Batch gradients;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    gradients.add(count, offset, buffers, buffers);
    offset += (count + kAlign - 1) / kAlign * kAlign;
  }
  if (state.range(1) != 0) {
    gradients.set_packs(make_packs(gradients.sizes(), {.bytes_per_pack = state.range(1) * 1024}));
  }
  Batch flat;
  flat.add(total, 0, buffers, buffers);
  compare(
      state, [&] { gradients.reduce(); }, [&] { flat.reduce(); }, 2 * n * total * sizeof(float));
}

/// What one call costs when there is next to nothing to reduce.
void tiny(benchmark::State& state) {
  const auto num_elements = static_cast<std::size_t>(state.range(0));
  const Buffers buffers = make_buffers(2, num_elements * sizeof(float), Buffer::Pages::ORDINARY);
  Batch batch;
  batch.add(num_elements, 0, buffers, buffers);
  for ([[maybe_unused]] auto iteration : state) batch.reduce();
}

void bars(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(21);
}

BENCHMARK(in_place_against_scale)
    ->Apply(bars)
    ->ArgNames({"devices", "KiB", "huge_pages"})
    ->ArgsProduct({{2, 4, 8}, {64 * 1024}, {0, 1}});
BENCHMARK(out_of_place_against_streaming_copy)
    ->Apply(bars)
    ->ArgNames({"devices", "KiB", "huge_pages"})
    ->ArgsProduct({{2, 4, 8}, {64 * 1024}, {0, 1}});
BENCHMARK(resnet50_against_flat)
    ->Apply(bars)
    ->ArgNames({"devices", "KiB_per_pack", "huge_pages"})
    ->ArgsProduct({{2, 4, 8}, {0, 25 * 1024}, {0, 1}});
BENCHMARK(tiny)->ArgName("elements")->Arg(2)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace crossdevice
