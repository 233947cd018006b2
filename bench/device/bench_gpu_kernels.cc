// SPDX-License-Identifier: Apache-2.0
// Our CUDA kernels against a flat device-to-device copy measured in the same run, turn by turn: percent_of_copy is what the memory can do for the bytes
// that the kernel has to read and write, over what it took.
//   bench_gpu_kernels [--workloads=DIR] [Google Benchmark's options]
// Without a GPU it says why and succeeds.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/gpu_platform.h"

#include "collective/gradient_list.h"

namespace crossdevice {
namespace {

using detail::CopyRange;
using detail::CudaStatus;

std::string workloads_dir = CROSSDEVICE_WORKLOADS_DIR;

detail::CudaApi& cuda() { return *detail::gpu_platform().cuda; }
detail::KernelApi& kernels() { return *detail::gpu_platform().kernels; }

void require(CudaStatus status, const char* what) { detail::require_cuda(cuda(), status, what); }

/// A stream and a pool on GPU 0, for the life of the program.
struct Gpu {
  detail::CudaStream stream = nullptr;
  detail::CudaPool pool = nullptr;

  static Gpu& instance() {
    static Gpu gpu;
    return gpu;
  }
  void wait() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (true) {
      const CudaStatus status = cuda().stream_query(stream);
      if (status == CudaStatus::SUCCESS) return;
      if (status != CudaStatus::NOT_READY) require(status, "stream");
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the GPU is stuck");
    }
  }

 private:
  Gpu() {
    require(cuda().set_device(0), "cudaSetDevice");
    require(cuda().stream_create(&stream), "cudaStreamCreate");
    require(cuda().create_pool(&pool, 0), "cudaMemPoolCreate");
  }
};

/// Device memory, zeroed.
class Buffer {
 public:
  explicit Buffer(std::size_t size_bytes) {
    const Gpu& gpu = Gpu::instance();
    void* pointer = nullptr;
    require(cuda().malloc_from_pool_async(&pointer, size_bytes, gpu.pool, gpu.stream), "malloc");
    data_ = static_cast<std::byte*>(pointer);
    require(cuda().memset_async(data_, 0, size_bytes, gpu.stream), "memset");
  }
  ~Buffer() {
    if (data_ != nullptr) (void)cuda().free_async(data_, Gpu::instance().stream);
  }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Seconds that each of `repetitions` calls takes, enqueued one behind the other.
double seconds_each(int repetitions, const std::function<void()>& enqueue) {
  const Gpu& gpu = Gpu::instance();
  gpu.wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < repetitions; ++r) enqueue();
  gpu.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         repetitions;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Times `enqueue`, which reads and writes `traffic_bytes` in all, and a copy of as much as that makes, in turns.
void compare_with_copy(benchmark::State& state, std::size_t traffic_bytes,
                       const std::function<void()>& enqueue) {
  constexpr int kRepetitions = 20;
  const std::size_t copied = traffic_bytes / 2;
  const Buffer from(copied);
  const Buffer to(copied);
  const auto copy = [&] {
    require(cuda().memcpy_async(to.data(), from.data(), copied, Gpu::instance().stream), "copy");
  };
  (void)seconds_each(3, copy);
  (void)seconds_each(3, enqueue);
  std::vector<double> ratios;
  std::vector<double> copy_seconds;
  for ([[maybe_unused]] auto iteration : state) {
    const double limit = seconds_each(kRepetitions, copy);
    const double taken = seconds_each(kRepetitions, enqueue);
    state.SetIterationTime(taken);
    ratios.push_back(limit / taken);
    copy_seconds.push_back(limit);
  }
  const auto bytes = static_cast<double>(traffic_bytes);
  state.SetBytesProcessed(static_cast<std::int64_t>(traffic_bytes) * state.iterations());
  state.counters["percent_of_copy"] = 100 * median(ratios);
  state.counters["copy_TB_per_s"] = bytes / median(copy_seconds) / 1e12;
  state.SetLabel("limit: device-to-device copy with the same bytes read and written");
}

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

/// The gradients of a model into one buffer of `wire` elements and back, divided by 8: `is_dense` without gaps, else each from a multiple of 16 bytes on.
void pack_and_unpack(benchmark::State& state, const std::string& model, DType wire, bool is_dense) {
  const auto gradients = bench::read_gradient_list(workloads_dir + "/" + model + ".csv");
  const std::size_t wire_bytes = size_in_bytes(wire);
  std::vector<Buffer> tensors;
  tensors.reserve(gradients.size());
  std::size_t packed_bytes = 0;
  std::size_t num_elements = 0;
  std::vector<std::size_t> offsets;
  offsets.reserve(gradients.size());
  for (const bench::Gradient& gradient : gradients) {
    tensors.emplace_back(gradient.num_elements() * sizeof(float));
    offsets.push_back(packed_bytes);
    packed_bytes += gradient.num_elements() * wire_bytes;
    if (!is_dense) packed_bytes = round_up(packed_bytes, 16);
    num_elements += gradient.num_elements();
  }
  const Buffer pack(packed_bytes);
  std::vector<CopyRange> into_pack;
  std::vector<CopyRange> out_of_pack;
  into_pack.reserve(gradients.size());
  out_of_pack.reserve(gradients.size());
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    std::byte* const place = pack.data() + offsets[t];
    into_pack.push_back({tensors[t].data(), place, gradients[t].num_elements()});
    out_of_pack.push_back({place, tensors[t].data(), gradients[t].num_elements()});
  }
  const detail::CudaStream stream = Gpu::instance().stream;
  compare_with_copy(state, 2 * num_elements * (sizeof(float) + wire_bytes), [&] {
    require(kernels().copy_ranges({.ranges = into_pack,
                                   .source_dtype = DType::FLOAT32,
                                   .destination_dtype = wire,
                                   .stream = stream}),
            "pack");
    require(kernels().copy_ranges({.ranges = out_of_pack,
                                   .source_dtype = wire,
                                   .destination_dtype = DType::FLOAT32,
                                   .divisor = 8,
                                   .stream = stream}),
            "unpack");
  });
}

void reduce(benchmark::State& state, ReduceOp op, DType dtype) {
  const auto num_inputs = static_cast<std::size_t>(state.range(0));
  const auto size_bytes = static_cast<std::size_t>(state.range(1));
  std::vector<Buffer> buffers;
  buffers.reserve(num_inputs + 1);
  std::vector<const void*> inputs;
  inputs.reserve(num_inputs);
  for (std::size_t k = 0; k <= num_inputs; ++k) buffers.emplace_back(size_bytes);
  for (std::size_t k = 0; k < num_inputs; ++k) inputs.push_back(buffers[k].data());
  void* const outputs[] = {buffers[num_inputs].data()};
  compare_with_copy(state, (num_inputs + 1) * size_bytes, [&] {
    require(kernels().reduce({.op = op,
                              .dtype = dtype,
                              .inputs = inputs,
                              .outputs = outputs,
                              .num_elements = size_bytes / size_in_bytes(dtype),
                              .stream = Gpu::instance().stream}),
            "reduce");
  });
}

/// A model's gradients on `num_replicas` devices of one GPU, each summed into all of them: the all-reduce of a batch by our kernels.
void reduce_batch(benchmark::State& state, const std::string& model, DType dtype,
                  std::size_t num_replicas) {
  std::vector<Buffer> tensors;
  std::vector<void*> pointers;
  std::vector<std::size_t> num_elements;
  std::size_t traffic_bytes = 0;
  for (const bench::Gradient& gradient :
       bench::read_gradient_list(workloads_dir + "/" + model + ".csv")) {
    const std::size_t size_bytes = gradient.num_elements() * size_in_bytes(dtype);
    const std::size_t first = tensors.size();
    for (std::size_t k = 0; k < num_replicas; ++k) tensors.emplace_back(size_bytes);
    for (std::size_t pass = 0; pass < 2; ++pass) {  // as inputs, as outputs
      for (std::size_t k = 0; k < num_replicas; ++k) pointers.push_back(tensors[first + k].data());
    }
    num_elements.push_back(gradient.num_elements());
    traffic_bytes += 2 * num_replicas * size_bytes;
  }
  const detail::ManyReduceLaunch launch{.op = ReduceOp::SUM,
                                        .dtype = dtype,
                                        .num_inputs = num_replicas,
                                        .num_outputs = num_replicas,
                                        .buffers = pointers,
                                        .num_elements = num_elements,
                                        .stream = Gpu::instance().stream};
  compare_with_copy(state, traffic_bytes, [&] {
    bool has_launched = false;
    require(kernels().reduce_many(launch, has_launched), "reduce_many");
  });
}

/// What MEAN adds to a sum that NCCL made where the tensor lies.
void divide_in_place(benchmark::State& state, DType dtype) {
  const auto size_bytes = static_cast<std::size_t>(state.range(0));
  const Buffer buffer(size_bytes);
  const CopyRange ranges[] = {{buffer.data(), buffer.data(), size_bytes / size_in_bytes(dtype)}};
  compare_with_copy(state, 2 * size_bytes, [&] {
    require(kernels().copy_ranges({.ranges = ranges,
                                   .source_dtype = dtype,
                                   .destination_dtype = dtype,
                                   .divisor = 8,
                                   .stream = Gpu::instance().stream}),
            "divide");
  });
}

void register_all() {
  using benchmark::RegisterBenchmark;
  for (const char* const model : {"resnet50", "bert_large", "gpt2_124m"}) {
    for (const DType wire : {DType::FLOAT32, DType::BFLOAT16}) {
      for (const bool is_dense : {false, true}) {
        const std::string name = std::string("pack_unpack/") + model + "/float32_as_" +
                                 std::string(to_string(wire)) + (is_dense ? "/dense" : "/aligned");
        RegisterBenchmark(name.c_str(), pack_and_unpack, std::string(model), wire, is_dense)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  for (const char* const model : {"resnet50", "bert_large", "gpt2_124m"}) {
    for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
      for (const std::size_t num_replicas : {2U, 4U, 8U}) {
        const std::string name = std::string("reduce_batch/") + model + "/" +
                                 std::string(to_string(dtype)) + "/" + std::to_string(num_replicas);
        RegisterBenchmark(name.c_str(), reduce_batch, std::string(model), dtype, num_replicas)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16, DType::FLOAT16, DType::FLOAT64,
                            DType::FLOAT8_E4M3, DType::FLOAT8_E5M2, DType::INT32}) {
    RegisterBenchmark(("reduce/SUM/" + std::string(to_string(dtype))).c_str(), reduce,
                      ReduceOp::SUM, dtype)
        ->ArgsProduct({{2, 4, 8, 16}, {64 << 20}})
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16}) {
    RegisterBenchmark(("reduce/MEAN/" + std::string(to_string(dtype))).c_str(), reduce,
                      ReduceOp::MEAN, dtype)
        ->ArgsProduct({{2, 8}, {1 << 20, 64 << 20}})
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
    RegisterBenchmark(("divide_in_place/" + std::string(to_string(dtype))).c_str(), divide_in_place,
                      dtype)
        ->Arg(1 << 20)
        ->Arg(64 << 20)
        ->Arg(256 << 20)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  constexpr std::string_view kWorkloads = "--workloads=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kWorkloads)) {
    crossdevice::workloads_dir = argv[1] + kWorkloads.size();
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const crossdevice::detail::GpuPlatform& platform = crossdevice::detail::gpu_platform();
  if (!platform.has_gpus()) {
    std::printf("no GPU: %s\n", platform.reason_against.c_str());
    return 0;
  }
  crossdevice::detail::CudaDeviceProperties properties;
  crossdevice::require(platform.cuda->get_device_properties(&properties, 0), "properties");
  benchmark::AddCustomContext("gpu", properties.name);
  crossdevice::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
