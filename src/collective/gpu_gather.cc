// SPDX-License-Identifier: Apache-2.0
// Concatenation on GPUs: one launch per output, which copies the runs of all inputs.
#include <vector>

#include "crossdevice/collective/gpu_reduce.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/scratch_lease.h"

#include "collective/detail/gpu_lanes.h"
#include "collective/detail/gpu_run.h"

namespace crossdevice {
namespace {

using detail::CopyRange;
using detail::GpuDevice;
using detail::GpuLane;

struct GatherScratch {
  std::vector<CopyRange> ranges;
  std::vector<Tensor> blocks;  // copies of inputs that a GPU does not reach; freed in stream order
  void clear() {
    ranges.clear();
    blocks.clear();
  }
};

/// The input's elements where the lane's GPU reaches them.
const char* reach(const GpuLane& lane, const Tensor& input, GatherScratch& scratch) {
  if (lane.device->reaches(GpuDevice::of(input.device())) || input.size_bytes() == 0) {
    return static_cast<const char*>(input.data());
  }
  scratch.blocks.push_back(
      Tensor::empty(input.dtype(), input.shape(), *lane.name, from_cuda(lane.stream)));
  void* const copy = scratch.blocks.back().data();
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  require_cuda(cuda, cuda.memcpy_async(copy, input.data(), input.size_bytes(), lane.stream),
               "cudaMemcpyAsync");
  return static_cast<const char*>(copy);
}

std::size_t product(std::span<const std::int64_t> dims) {
  std::size_t elements = 1;
  for (const std::int64_t dim : dims) elements *= static_cast<std::size_t>(dim);
  return elements;
}

// With the dimensions before `axis` flattened to rows, every input holds one contiguous run per row, and a row of the output is the inputs'
// runs one after the other.
void gather_into(const GpuLane& lane, std::span<const Tensor> inputs, std::size_t axis,
                 const Tensor& output) {
  const detail::GpuPlatform& platform = detail::gpu_platform();
  const detail::CurrentCudaDevice current(*platform.cuda, lane.device->ordinal());
  const detail::ScratchLease<GatherScratch> scratch;
  const std::size_t size = size_in_bytes(output.dtype());
  const std::size_t rows = product(output.shape().dims().first(axis));
  const std::size_t row_elements = product(output.shape().dims().subspan(axis));
  std::size_t offset = 0;
  for (const Tensor& input : inputs) {
    const std::size_t run = product(input.shape().dims().subspan(axis));
    const char* const from = reach(lane, input, *scratch);
    for (std::size_t row = 0; run != 0 && row < rows; ++row) {
      scratch->ranges.push_back(
          {from + row * run * size,
           static_cast<char*>(output.data()) + (row * row_elements + offset) * size, run});
    }
    offset += run;
  }
  if (scratch->ranges.empty()) return;
  require_cuda(*platform.cuda,
               platform.kernels->copy_ranges({.ranges = scratch->ranges,
                                              .source_dtype = output.dtype(),
                                              .destination_dtype = output.dtype(),
                                              .divisor = 1,
                                              .stream = lane.stream}),
               "the copies' kernel");
}

}  // namespace

void gpu_gather(std::span<const Tensor> inputs, std::size_t axis, std::span<const Tensor> outputs,
                const GpuOperation& operation) {
  detail::GpuLanes lanes;
  lanes.add(inputs);
  lanes.add(outputs);
  detail::GpuRun run(lanes);
  const auto contents = detail::GpuContents::of(inputs[0]);
  try {
    run.begin();
    lanes.meet();
    for (const Tensor& output : outputs) gather_into(lanes.of(output), inputs, axis, output);
    lanes.meet();
    run.end(operation, contents);
  } catch (const OpError& error) {
    run.rethrow(error, operation, contents);
  }
}

}  // namespace crossdevice
