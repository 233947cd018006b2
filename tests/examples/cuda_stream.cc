// SPDX-License-Identifier: Apache-2.0
// Device memory and streams of your own: calls are enqueued there, and the host does not wait.
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

constexpr int kSkipped = 77;

bool require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return false;
}

}  // namespace

int main() {
  if (cd::num_gpus() == 0) {
    std::printf("SKIPPED: no GPU\n");
    return kSkipped;
  }
  if (cd::num_gpus() == 1) cd::set_logical_gpu_devices(2);  // one GPU as two devices
  constexpr std::size_t kCount = 1'000'003;
  int gpus = 0;
  if (!require(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount")) return 1;

  std::vector<float*> buffers(2);
  std::vector<cudaStream_t> streams(2);
  std::vector<cd::Tensor> components;
  std::vector<std::vector<float>> values(2, std::vector<float>(kCount));
  for (int i = 0; i < 2; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t k = 0; k < kCount; ++k)
      values[at][k] = static_cast<float>(k % 1000 * (at + 1));
    if (!require(cudaSetDevice(gpus > 1 ? i : 0), "cudaSetDevice") ||
        !require(cudaStreamCreateWithFlags(&streams[at], cudaStreamNonBlocking),
                 "cudaStreamCreate") ||
        !require(cudaMalloc(&buffers[at], kCount * sizeof(float)), "cudaMalloc") ||
        !require(cudaMemcpyAsync(buffers[at], values[at].data(), kCount * sizeof(float),
                                 cudaMemcpyHostToDevice, streams[at]),
                 "cudaMemcpyAsync")) {
      return 1;
    }
    components.push_back(cd::Tensor::view(buffers[at], cd::DType::FLOAT32, {kCount},
                                          "GPU:" + std::to_string(i), cd::from_cuda(streams[at])));
  }

  // NCCL where it can, our kernels where it cannot (two devices on one GPU).
  cd::NcclAllReduce ops;
  const cd::PerReplica gradient(components);
  ops.reduce_into(ReduceOp::SUM, gradient, gradient,
                  {.timeout_seconds = 60});  // behind the copies, in stream order

  bool is_right = true;
  for (std::size_t at = 0; at < 2; ++at) {
    std::vector<float> result(kCount);
    if (!require(cudaMemcpyAsync(result.data(), buffers[at], kCount * sizeof(float),
                                 cudaMemcpyDeviceToHost, streams[at]),
                 "cudaMemcpyAsync") ||
        !require(cudaStreamSynchronize(streams[at]), "cudaStreamSynchronize")) {
      return 1;
    }
    for (std::size_t k = 0; k < kCount; ++k) {
      is_right = is_right && result[k] == static_cast<float>(k % 1000 * 3);
    }
  }
  ops.check();  // throws what the watchdog found
  std::printf("%s\n", is_right ? "right" : "WRONG");
  for (std::size_t at = 0; at < 2; ++at) {
    (void)cudaFree(buffers[at]);
    (void)cudaStreamDestroy(streams[at]);
  }
  return is_right ? 0 : 1;
}
