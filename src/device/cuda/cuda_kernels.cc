// SPDX-License-Identifier: Apache-2.0
// Which source file's kernels serve a launch. Nothing here allocates device memory or waits, so every launch may be captured.
#if defined(CROSSDEVICE_WITH_CUDA)

#include "device/cuda/cuda_kernels.h"

#include <algorithm>
#include <memory>

#include "device/cuda/copy_plan.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/launchers.h"
#include "device/cuda/reduce_plan.h"

namespace crossdevice::cuda {
namespace {

using detail::CudaStatus;

int launch_reduction(ReducePlan& plan, detail::CudaStream stream) {
  switch (plan.element) {
    case ElementKind::FLOAT8_E4M3:
      return launch_float8_e4m3(plan, stream);
    case ElementKind::FLOAT8_E5M2:
      return launch_float8_e5m2(plan, stream);
    case ElementKind::FLOAT16:
      return launch_float16(plan, stream);
    case ElementKind::BFLOAT16:
      return launch_bfloat16(plan, stream);
    case ElementKind::FLOAT32:
      return launch_float32(plan, stream);
    case ElementKind::FLOAT64:
      return launch_float64(plan, stream);
    case ElementKind::BITS8:
      return launch_bits8(plan, stream);
    case ElementKind::BITS16:
      return launch_bits16(plan, stream);
    case ElementKind::BITS32:
      return launch_bits32(plan, stream);
    case ElementKind::BITS64:
      break;
  }
  return launch_bits64(plan, stream);
}

int launch_copies(const detail::CopyLaunch& launch) {
  if (copies_bits(launch)) return launch_byte_copies(launch);
  switch (float_kind(launch.source_dtype)) {
    case ElementKind::FLOAT8_E4M3:
      return launch_conversions_from_float8_e4m3(launch);
    case ElementKind::FLOAT8_E5M2:
      return launch_conversions_from_float8_e5m2(launch);
    case ElementKind::FLOAT16:
      return launch_conversions_from_float16(launch);
    case ElementKind::BFLOAT16:
      return launch_conversions_from_bfloat16(launch);
    case ElementKind::FLOAT64:
      return launch_conversions_from_float64(launch);
    case ElementKind::FLOAT32:
    case ElementKind::BITS8:
    case ElementKind::BITS16:
    case ElementKind::BITS32:
    case ElementKind::BITS64:
      break;
  }
  return launch_conversions_from_float32(launch);
}

class CudaKernels : public detail::KernelApi {
 public:
  CudaStatus copy_ranges(const detail::CopyLaunch& launch) override {
    return status_of(static_cast<cudaError_t>(launch_copies(launch)));
  }
  CudaStatus reduce(const detail::ReduceLaunch& launch) override {
    if (launch.num_elements == 0) return CudaStatus::SUCCESS;
    if (!are_valid(launch.inputs.size(), launch.outputs.size())) return CudaStatus::INVALID_VALUE;
    ReducePlan plan;
    plan_reduce(launch, plan);
    return status_of(static_cast<cudaError_t>(launch_reduction(plan, launch.stream)));
  }
  CudaStatus reduce_many(const detail::ManyReduceLaunch& launch, bool& has_launched) override {
    has_launched = false;
    const std::size_t num_buffers = launch.num_inputs + launch.num_outputs;
    if (!are_valid(launch.num_inputs, launch.num_outputs) ||
        launch.buffers.size() != num_buffers * launch.num_elements.size()) {
      return CudaStatus::INVALID_VALUE;
    }
    ReducePlan plan;
    plan_reduce(launch, plan);
    const int result = launch_reduction(plan, launch.stream);
    has_launched = plan.has_launched;
    return status_of(static_cast<cudaError_t>(result));
  }

 private:
  static bool are_valid(std::size_t num_inputs, std::size_t num_outputs) {
    return num_inputs > 0 && std::max(num_inputs, num_outputs) <= kMaxBuffers;
  }
};

}  // namespace

std::shared_ptr<detail::KernelApi> make_cuda_kernels() { return std::make_shared<CudaKernels>(); }

}  // namespace crossdevice::cuda

#endif
