// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/gpu_reduce.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/inline_vector.h"
#include "crossdevice/core/reused_list.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/gpu_span.h"
#include "crossdevice/device/scratch_lease.h"

#include "collective/detail/gpu_lanes.h"
#include "collective/detail/gpu_run.h"

namespace crossdevice {
namespace {

using detail::CopyRange;
using detail::CudaStream;
using detail::GpuContents;
using detail::GpuDevice;
using detail::GpuLane;
using detail::GpuLanes;
using detail::GpuRun;

/// Below this a tensor is reduced by one GPU: shares of it would be launches for little.
constexpr std::size_t kLeastShareBytes = std::size_t{128} << 10;
/// Shares begin where 16-byte accesses of every dtype do.
constexpr std::size_t kShareAlignment = 128;

constexpr std::size_t kMaxBuffers = detail::kMaxReduceBuffers;

/// As errors call it.
constexpr const char* kKernelOfReduction = "the reduction's kernel";

/// Of lanes, in the number that a machine has.
using Indices = detail::InlineVector<std::size_t, 8>;

/// Elements [begin, begin + count) of a tensor, reduced by the GPU of lane `lane`.
struct Share {
  std::size_t lane;
  std::size_t begin;
  std::size_t count;
};

char* at(const Tensor& tensor, std::size_t element) {
  return static_cast<char*>(tensor.data()) + element * size_in_bytes(tensor.dtype());
}

/// Deals the elements of a batch's tensors out to the GPUs that reduce.
class ShareDealer {
 public:
  explicit ShareDealer(std::span<const std::size_t> reducers) : reducers_(reducers) {
    for (std::size_t i = 0; i < reducers.size(); ++i) loads_.push_back(0);
  }

  /// Calls `take(Share)` for every share of a tensor.
  template <class Take>
  void deal(const Tensor& like, const Take& take) {
    const std::size_t size = size_in_bytes(like.dtype());
    const std::size_t count = like.num_elements();
    if (count == 0) return;
    if (reducers_.size() == 1 || count * size < kLeastShareBytes * reducers_.size()) {
      std::size_t* const least = std::min_element(loads_.begin(), loads_.end());
      *least += count * size;
      take(Share{reducers_[static_cast<std::size_t>(least - loads_.begin())], 0, count});
      return;
    }
    const std::size_t step = kShareAlignment / size;
    for (std::size_t i = 0; i < reducers_.size(); ++i) {
      const std::size_t begin = count * i / reducers_.size() / step * step;
      const std::size_t end =
          i + 1 == reducers_.size() ? count : count * (i + 1) / reducers_.size() / step * step;
      take(Share{reducers_[i], begin, end - begin});
    }
  }

 private:
  std::span<const std::size_t> reducers_;
  Indices loads_;  // bytes that each GPU reduces alone so far
};

void copy_on(const GpuLane& lane, void* to, const void* from, std::size_t size_bytes) {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  require_cuda(cuda, cuda.memcpy_async(to, from, size_bytes, lane.stream), "cudaMemcpyAsync");
}

/// A share of an output that its GPU does not reach, and the block that stands for it.
struct Detour {
  Tensor block;
  void* place;
};

/// Working memory of one share.
struct ShareScratch {
  std::array<const void*, kMaxBuffers> inputs;
  std::array<void*, kMaxBuffers> outputs;
  std::vector<Tensor>
      blocks;  // stand for inputs; freed in stream order, behind the kernel that reads them
  std::vector<Detour> detours;
  void clear() {
    blocks.clear();
    detours.clear();
  }
};

bool is_reached(const GpuLane& lane, const Tensor& tensor) {
  return lane.device->reaches(GpuDevice::of(tensor.device()));
}

Tensor make_block(const GpuLane& lane, std::size_t size_bytes) {
  return Tensor::empty(DType::UINT8, Shape{size_bytes}, *lane.name, from_cuda(lane.stream));
}

/// Whether the GPU of `lane` reaches all memory of the tensor.
bool reaches_all(const GpuLane& lane, const GpuReduceTensor& tensor) {
  const auto reaches = [&lane](const Tensor& each) { return is_reached(lane, each); };
  return std::all_of(tensor.inputs.begin(), tensor.inputs.end(), reaches) &&
         std::all_of(tensor.outputs.begin(), tensor.outputs.end(), reaches);
}

/// A launch that CUDA refuses has written nothing.
void launch_one(const detail::ReduceLaunch& launch, GpuRun& run) {
  const detail::GpuPlatform& platform = detail::gpu_platform();
  require_cuda(*platform.cuda, platform.kernels->reduce(launch), kKernelOfReduction);
  run.set_written();
}

/// Enqueues the reduction of one share on its lane, by way of blocks where the GPU does not reach a tensor.
void reduce_share(const GpuReduceRequest& request, const GpuReduceTensor& tensor,
                  const GpuLane& lane, const Share& share, GpuRun& run) {
  const detail::CurrentCudaDevice current(*detail::gpu_platform().cuda, lane.device->ordinal());
  const detail::ScratchLease<ShareScratch> scratch;
  for (std::size_t i = 0; i < tensor.inputs.size(); ++i) {
    const Tensor& input = tensor.inputs[i];
    scratch->inputs[i] = at(input, share.begin);
    if (is_reached(lane, input)) continue;
    const std::size_t size_bytes = share.count * size_in_bytes(input.dtype());
    scratch->blocks.push_back(make_block(lane, size_bytes));
    copy_on(lane, scratch->blocks.back().data(), scratch->inputs[i], size_bytes);
    scratch->inputs[i] = scratch->blocks.back().data();
  }
  for (std::size_t i = 0; i < tensor.outputs.size(); ++i) {
    const Tensor& output = tensor.outputs[i];
    scratch->outputs[i] = at(output, share.begin);
    if (is_reached(lane, output)) continue;
    scratch->detours.push_back(
        {make_block(lane, share.count * size_in_bytes(output.dtype())), scratch->outputs[i]});
    scratch->outputs[i] = scratch->detours.back().block.data();
  }
  launch_one({.op = request.op,
              .dtype = tensor.inputs[0].dtype(),
              .inputs = std::span(scratch->inputs).first(tensor.inputs.size()),
              .outputs = std::span(scratch->outputs).first(tensor.outputs.size()),
              .first_group = request.first_group,
              .num_elements = share.count,
              .stream = lane.stream},
             run);
  for (const Detour& detour : scratch->detours) {
    copy_on(lane, detour.place, detour.block.data(), detour.block.size_bytes());
  }
}

/// Shares that one call of the kernels takes: on one lane, of one dtype and as many inputs and outputs, all of which the GPU reaches.
struct ShareGroup {
  std::size_t lane = 0;
  DType dtype = DType::FLOAT32;
  std::size_t num_inputs = 0;
  std::size_t num_outputs = 0;
  std::vector<void*> buffers;  // of each share its inputs, then its outputs
  std::vector<std::size_t> counts;

  [[nodiscard]] bool takes(const GpuReduceTensor& tensor, std::size_t of_lane) const {
    return lane == of_lane && dtype == tensor.inputs[0].dtype() &&
           num_inputs == tensor.inputs.size() && num_outputs == tensor.outputs.size();
  }
  void add(const GpuReduceTensor& tensor, const Share& share) {
    for (const Tensor& input : tensor.inputs) buffers.push_back(at(input, share.begin));
    for (const Tensor& output : tensor.outputs) buffers.push_back(at(output, share.begin));
    counts.push_back(share.count);
  }
  void clear() {
    buffers.clear();
    counts.clear();
  }
};
using ShareGroups = detail::ReusedList<ShareGroup>;

ShareGroup& group_of(ShareGroups& groups, const GpuReduceTensor& tensor, std::size_t lane) {
  for (ShareGroup& group : groups.view()) {
    if (group.takes(tensor, lane)) return group;
  }
  ShareGroup& group = groups.add();
  group.lane = lane;
  group.dtype = tensor.inputs[0].dtype();
  group.num_inputs = tensor.inputs.size();
  group.num_outputs = tensor.outputs.size();
  return group;
}

/// Enqueues the reductions of a group.
void reduce_group(const GpuReduceRequest& request, const ShareGroup& group, const GpuLane& lane,
                  GpuRun& run) {
  const detail::GpuPlatform& platform = detail::gpu_platform();
  const detail::CurrentCudaDevice current(*platform.cuda, lane.device->ordinal());
  const std::span<void* const> buffers = group.buffers;
  if (group.counts.size() == 1) {
    launch_one({.op = request.op,
                .dtype = group.dtype,
                .inputs = {group.buffers.data(), group.num_inputs},
                .outputs = buffers.subspan(group.num_inputs),
                .first_group = request.first_group,
                .num_elements = group.counts[0],
                .stream = lane.stream},
               run);
    return;
  }
  const detail::ManyReduceLaunch launch{.op = request.op,
                                        .dtype = group.dtype,
                                        .num_inputs = group.num_inputs,
                                        .num_outputs = group.num_outputs,
                                        .buffers = buffers,
                                        .num_elements = group.counts,
                                        .first_group = request.first_group,
                                        .stream = lane.stream};
  bool has_launched = false;
  const detail::CudaStatus status = platform.kernels->reduce_many(launch, has_launched);
  if (has_launched) run.set_written();
  require_cuda(*platform.cuda, status, kKernelOfReduction);
}

void require_few(std::span<const GpuReduceTensor> tensors) {
  for (const GpuReduceTensor& tensor : tensors) {
    if (tensor.inputs.size() > kMaxBuffers || tensor.outputs.size() > kMaxBuffers) {
      throw ValueError(
          fmt::format("{} components to {} outputs on GPUs: at most {} of each can be reduced",
                      tensor.inputs.size(), tensor.outputs.size(), kMaxBuffers));
    }
  }
}

/// The lanes that reduce: the one asked for where it takes part, or those of the outputs.
Indices reducers_of(const GpuReduceRequest& request, const GpuLanes& lanes) {
  if (request.reducer.has_value() && !request.reducer->is_host()) {
    const GpuDevice& wanted = GpuDevice::of(*request.reducer);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].device != &wanted) continue;
      Indices one;
      one.push_back(i);
      return one;
    }
  }
  Indices reducers;
  for (const GpuReduceTensor& tensor : request.tensors) {
    for (const Tensor& output : tensor.outputs) {
      const std::size_t lane = lanes.index_of(GpuDevice::of(output.device()));
      if (std::find(reducers.begin(), reducers.end(), lane) == reducers.end()) {
        reducers.push_back(lane);
      }
    }
  }
  return reducers;
}

}  // namespace

void gpu_reduce(const GpuReduceRequest& request) {
  require_few(request.tensors);
  GpuLanes lanes;
  for (const GpuReduceTensor& tensor : request.tensors) {
    lanes.add(tensor.inputs, tensor.outputs);
  }
  const Indices reducers = reducers_of(request, lanes);
  if (reducers.empty()) return;
  GpuRun run(lanes);
  try {
    run.begin();
    lanes.meet();
    detail::GpuSpan span(detail::GpuSpanKind::PART);
    const detail::ScratchLease<ShareGroups> groups;
    ShareDealer dealer(reducers.view());
    for (const GpuReduceTensor& tensor : request.tensors) {
      if (tensor.outputs.empty()) continue;
      dealer.deal(tensor.inputs[0], [&](const Share& share) {
        const GpuLane& lane = lanes[share.lane];
        run.begin(span, *lane.device, lane.stream);
        if (reaches_all(lane, tensor)) {
          group_of(*groups, tensor, share.lane).add(tensor, share);
        } else {
          reduce_share(request, tensor, lane, share, run);
        }
      });
    }
    for (const ShareGroup& group : groups->view()) {
      reduce_group(request, group, lanes[group.lane], run);
    }
    const GpuContents contents = GpuContents::of(request.tensors);
    span.end("reduce", [&] { return detail::trace_arguments(request.operation.record, contents); });
    lanes.meet();
    run.end(request.operation, contents);
  } catch (const OpError& error) {
    run.rethrow(error, request.operation, GpuContents::of(request.tensors));
  }
}

void gpu_broadcast(const Tensor& source, std::span<const Tensor> outputs,
                   const GpuOperation& operation) {
  GpuLanes lanes;
  lanes.add(source);
  lanes.add(outputs);
  GpuRun run(lanes);
  try {
    run.begin();
    lanes.meet();
    for (const Tensor& output : outputs) {
      if (output.data() == source.data() || source.size_bytes() == 0) continue;
      const GpuLane& lane = lanes.of(output);
      const detail::CurrentCudaDevice current(*detail::gpu_platform().cuda, lane.device->ordinal());
      copy_on(lane, output.data(), source.data(), source.size_bytes());
    }
    lanes.meet();
    run.end(operation, GpuContents::of(source));
  } catch (const OpError& error) {
    // Not set_written(): the source itself is never written.
    run.rethrow(error, operation, GpuContents::of(source));
  }
}

void gpu_divide(const Tensor& tensor, double divisor, const GpuOperation& operation) {
  GpuLanes lanes;
  lanes.add(tensor);
  GpuRun run(lanes);
  try {
    run.begin();
    const detail::GpuPlatform& platform = detail::gpu_platform();
    const detail::CurrentCudaDevice current(*platform.cuda, lanes[0].device->ordinal());
    const CopyRange all{tensor.data(), tensor.data(), tensor.num_elements()};
    require_cuda(*platform.cuda,
                 platform.kernels->copy_ranges({.ranges = std::span<const CopyRange>(&all, 1),
                                                .source_dtype = tensor.dtype(),
                                                .destination_dtype = tensor.dtype(),
                                                .divisor = divisor,
                                                .stream = lanes[0].stream}),
                 "the division's kernel");
    run.end(operation, GpuContents::of(tensor));
  } catch (const OpError& error) {
    run.rethrow(error, operation, GpuContents::of(tensor));
  }
}

}  // namespace crossdevice
