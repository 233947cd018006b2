// SPDX-License-Identifier: Apache-2.0
// A trainer in the manner of llm.c: one process per device, all gradients in one flat buffer, one call per step.
//
//   crossdevice-run -n 2 -- ./flat_gradients
//
// Each worker takes one of the machine's GPUs where there is one for each (default_devices), with memory and a stream of its own there; else CPU:0. The
// model is so small that it stays on the host: its gradients are brought to the GPU and back, where a real one's kernels would write and read them.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef EXAMPLE_WITH_CUDA
#include <cuda_runtime.h>

#include <crossdevice/device/interop_cuda.h>
#endif

#include <crossdevice/comm/default_devices.h>
#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr std::size_t kInputs = 16;
constexpr std::size_t kSamples = 64;  // of all workers together

/// All gradients, one behind the other, where the library reduces them.
class FlatBuffer {
 public:
  virtual ~FlatBuffer() = default;
  /// What the host writes before a step is reduced, and reads after it.
  [[nodiscard]] virtual std::span<float> on_host() = 0;
  [[nodiscard]] virtual const cd::Tensor& tensor() const = 0;
  /// From the host to the device, and back; on a GPU in the order of its stream, and back waits.
  virtual void upload() {}
  virtual void download() {}
};

/// Of the library's pool: workers of one machine reduce it where it lies.
class HostBuffer : public FlatBuffer {
 public:
  HostBuffer(const cd::Device& device, std::size_t count)
      : tensor_(cd::Tensor::zeros(cd::DType::FLOAT32, {count}, device)) {}
  std::span<float> on_host() override { return tensor_.span<float>(); }
  const cd::Tensor& tensor() const override { return tensor_; }

 private:
  cd::Tensor tensor_;
};

#ifdef EXAMPLE_WITH_CUDA
void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Memory and a stream of your own.
class GpuBuffer : public FlatBuffer {
 public:
  GpuBuffer(const cd::Device& device, std::size_t count) : count_(count) {
    require(cudaSetDevice(cd::cuda_device_of(device)));
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    require(cudaMalloc(&gradients_, count * sizeof(float)));
    require(cudaMallocHost(&on_host_, count * sizeof(float)));
    tensor_ =
        cd::Tensor::view(gradients_, cd::DType::FLOAT32, {count}, device, cd::from_cuda(stream_));
  }
  ~GpuBuffer() override {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaFree(gradients_);
    (void)cudaFreeHost(on_host_);
    (void)cudaStreamDestroy(stream_);
  }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  std::span<float> on_host() override { return {on_host_, count_}; }
  const cd::Tensor& tensor() const override { return tensor_; }
  void upload() override {
    require(cudaMemcpyAsync(gradients_, on_host_, count_ * sizeof(float), cudaMemcpyHostToDevice,
                            stream_));
  }
  void download() override {
    require(cudaMemcpyAsync(on_host_, gradients_, count_ * sizeof(float), cudaMemcpyDeviceToHost,
                            stream_));
    require(cudaStreamSynchronize(stream_));
  }

 private:
  std::size_t count_;
  cudaStream_t stream_ = nullptr;
  float* gradients_ = nullptr;
  float* on_host_ = nullptr;
  cd::Tensor tensor_;
};
#endif

std::unique_ptr<FlatBuffer> make_buffer(const cd::Device& device, std::size_t count) {
#ifdef EXAMPLE_WITH_CUDA
  if (device.type() == cd::DeviceType::GPU) return std::make_unique<GpuBuffer>(device, count);
#endif
  return std::make_unique<HostBuffer>(device, count);
}

/// One device for this worker: a GPU where every worker has got one.
cd::Device device_of(cd::Cluster& cluster) {
  const cd::Device mine = cd::default_devices(cluster)[0];
  for (const std::string& other : cluster.all_gather_bytes(mine.short_name())) {
    if (!other.starts_with("GPU:")) return cd::Device("CPU:0");
  }
  return mine;
}

/// A line through the data: kInputs weights and a bias, in one flat buffer as their gradients are.
struct Model {
  std::vector<float> parameters = std::vector<float>(kInputs + 1);
  std::span<float> gradients;

  static float input(std::size_t sample, std::size_t i) {
    return static_cast<float>((sample * (i + 3)) % 7) / 7 - 0.4F;
  }
  static float target(std::size_t sample) {
    float y = 0.25F;
    for (std::size_t i = 0; i < kInputs; ++i) y += input(sample, i) * static_cast<float>(i % 3);
    return y;
  }

  /// The mean loss of samples [begin, end); writes its gradients.
  float backward(std::size_t begin, std::size_t end) const {
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    float loss = 0;
    const auto count = static_cast<float>(end - begin);
    for (std::size_t sample = begin; sample < end; ++sample) {
      float error = parameters[kInputs] - target(sample);
      for (std::size_t i = 0; i < kInputs; ++i) error += parameters[i] * input(sample, i);
      loss += error * error / count;
      for (std::size_t i = 0; i < kInputs; ++i) {
        gradients[i] += 2 * error * input(sample, i) / count;
      }
      gradients[kInputs] += 2 * error / count;
    }
    return loss;
  }
  void update(float rate) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * gradients[i];
  }
};

}  // namespace

int main() {
  const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
  const cd::Device device = device_of(*cluster);
  const std::unique_ptr<FlatBuffer> flat = make_buffer(device, kInputs + 1);
  cd::CollectiveAllReduce ops(device, cluster->num_workers(), {.timeout_seconds = 60}, cluster);
  const cd::PerReplica value{flat->tensor()};  // built once, used every step: nothing is allocated
  Model model;
  model.gradients = flat->on_host();

  const auto workers = static_cast<std::size_t>(cluster->num_workers());
  const std::size_t share = kSamples / workers;
  const std::size_t begin = static_cast<std::size_t>(cluster->rank()) * share;
  float first = 0;
  float last = 0;
  for (int step = 0; step < 300; ++step) {
    last = model.backward(begin, begin + share);
    if (step == 0) first = last;
    flat->upload();
    ops.reduce_into(ReduceOp::MEAN, value, value);  // one call for all gradients of the step
    flat->download();
    model.update(0.2F);
  }
  ops.check();  // throws what went wrong on a GPU after its call had returned

  // Every worker has the same bits, or else the trainer is wrong.
  const std::string bits(reinterpret_cast<const char*>(model.parameters.data()),
                         model.parameters.size() * sizeof(float));
  bool are_equal = true;
  for (const std::string& other : cluster->all_gather_bytes(bits))
    are_equal = are_equal && other == bits;
  std::printf("rank %d on %s: loss %g to %g, %s\n", cluster->rank(), device.short_name().c_str(),
              first, last, are_equal ? "equal weights" : "DIFFERENT WEIGHTS");
  return are_equal && last < first / 20 ? 0 : 1;
}
