// SPDX-License-Identifier: Apache-2.0
// Finds the GPUs, makes what each of them has once, and connects them.
#include "crossdevice/device/gpu_device.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/gpu_span.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/device/tensor.h"

#include "device/detail/freed_marks.h"
#include "device/detail/gpu_event_pool.h"
#include "device/detail/logical_gpus.h"

namespace crossdevice::detail {
namespace {

// Relaxed: the flag guards no memory. A call that is under way when it is set goes on as if it had come before.
std::atomic<bool> is_closed{false};

/// What they have done so far is in the timeline, if there is one.
void close_gpus() {
  flush_trace();
  is_closed.store(true, std::memory_order_relaxed);
  await_end_of_gpu_bars();
}

/// Set when the destructors run of what lived before the first use of a GPU, so that from then on nobody calls CUDA, which may have ended. What was
/// made later, tensors with static storage duration too, dies before: CUDA, which was there earlier still, then still works.
struct EndOfMain {
  ~EndOfMain() { close_gpus(); }
};

std::vector<std::unique_ptr<GpuDevice>> make_gpus() {
  CudaApi& cuda = *gpu_platform().cuda;
  const int count = num_physical_gpus();
  std::vector<std::unique_ptr<GpuDevice>> gpus;
  gpus.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) gpus.push_back(std::make_unique<GpuDevice>(cuda, i, count));
  stop_at_shutdown(&close_gpus);
  static const EndOfMain end_of_main;
  return gpus;
}

}  // namespace

bool are_gpus_closed() noexcept {
  return is_closed.load(std::memory_order_relaxed) || is_forked_child();
}

namespace {

[[gnu::noinline]] GpuDevice& find_gpu(const Device& device) {
  if (device.is_host()) {
    throw ValueError(fmt::format("expected a GPU, got {}", device.short_name()));
  }
  require_not_forked();
  device.require_present();
  // Never destroyed: tensors with static storage duration refer to them after main.
  static auto& gpus = *new std::vector<std::unique_ptr<GpuDevice>>(make_gpus());
  if (are_gpus_closed()) {
    throw FailedPreconditionError(
        fmt::format("{}: no GPU can be used after shutdown()", device.short_name()));
  }
  const auto physical = static_cast<std::size_t>(physical_gpu_of(device.index()));
  // Until that call another thread may have split the GPUs into fewer devices.
  if (physical >= gpus.size()) device.require_present();
  GpuDevice& gpu = *gpus[physical];
  // Of one that names a job, the program may still say that it is another process'.
  if (device.has_bare_labels()) remember_gpu_of(device, gpu);
  return gpu;
}

}  // namespace

GpuDevice& GpuDevice::of(const Device& device) {
  GpuDevice* const known = remembered_gpu_of(device);
  return known != nullptr && !are_gpus_closed() ? *known : find_gpu(device);
}

GpuDevice::GpuDevice(CudaApi& cuda, int ordinal, int num_gpus)
    : cuda_(cuda),
      ordinal_(ordinal),
      events_(std::make_unique<GpuEventPool>(/*has_timing=*/false)),
      timed_events_(std::make_unique<GpuEventPool>(/*has_timing=*/true)),
      freed_marks_(std::make_unique<FreedMarks>(*this)),
      reaches_(std::make_unique<std::atomic<Reach>[]>(static_cast<std::size_t>(num_gpus))) {
  require_cuda(cuda_, cuda_.get_device_properties(&properties_, ordinal_),
               "cudaGetDeviceProperties");
}

GpuDevice::~GpuDevice() = default;

CudaStream GpuDevice::own_stream() {
  if (const CudaStream known = own_stream_.load(std::memory_order_acquire)) return known;
  require_not_forked();
  const std::lock_guard lock(make_mutex_);
  CudaStream stream = own_stream_.load(std::memory_order_relaxed);
  if (stream != nullptr) return stream;
  const BesideCaptures beside(cuda_);
  const CurrentCudaDevice current(cuda_, ordinal_);
  require_cuda(cuda_, cuda_.stream_create(&stream), "cudaStreamCreateWithPriority");
  own_stream_.store(stream, std::memory_order_release);
  return stream;
}

CudaPool GpuDevice::memory_pool() {
  if (const CudaPool known = memory_pool_.load(std::memory_order_acquire)) return known;
  require_not_forked();
  const std::lock_guard lock(make_mutex_);
  CudaPool pool = memory_pool_.load(std::memory_order_relaxed);
  if (pool != nullptr) return pool;
  if (!properties_.has_memory_pools) {
    throw UnavailableError(
        fmt::format("CUDA device {} ({}) has no stream-ordered memory pools (cudaMallocAsync)",
                    ordinal_, properties_.name));
  }
  const BesideCaptures beside(cuda_);
  const CurrentCudaDevice current(cuda_, ordinal_);
  require_cuda(cuda_, cuda_.create_pool(&pool, ordinal_), "cudaMemPoolCreate");
  memory_pool_.store(pool, std::memory_order_release);
  return pool;
}

bool GpuDevice::reaches(GpuDevice& peer) {
  if (&peer == this) return true;
  // Relaxed: the answer guards no memory. Two threads that ask at once both enable it; CUDA tells the second that it is.
  std::atomic<Reach>& known = reaches_[static_cast<std::size_t>(peer.ordinal_)];
  const Reach reach = known.load(std::memory_order_relaxed);
  if (reach != Reach::UNKNOWN) return reach == Reach::YES;
  require_not_forked();
  const bool does = enable_peer(peer);
  known.store(does ? Reach::YES : Reach::NO, std::memory_order_relaxed);
  return does;
}

bool GpuDevice::enable_peer(GpuDevice& peer) {
  bool can = false;
  require_cuda(cuda_, cuda_.can_access_peer(&can, ordinal_, peer.ordinal_),
               "cudaDeviceCanAccessPeer");
  if (!can) return false;
  const BesideCaptures beside(cuda_);
  const CurrentCudaDevice current(cuda_, ordinal_);
  const auto is_done = [&](CudaStatus status, const char* what) {
    switch (status) {
      case CudaStatus::SUCCESS:
      case CudaStatus::PEER_ACCESS_ALREADY_ENABLED:
        return true;
      case CudaStatus::STREAM_CAPTURE_UNSUPPORTED:
        require_cuda(cuda_, status, what);  // that holds for now only
        break;
      default:  // any other code of CUDA's
        break;
    }
    log(LogSeverity::WARNING,
        fmt::format("CUDA device {} can reach device {}, but enabling it failed, so that data take "
                    "a longer way: {}: {}",
                    ordinal_, peer.ordinal_, what, cuda_.error_text(status)));
    return false;
  };
  if (!is_done(cuda_.enable_peer_access(peer.ordinal_), "cudaDeviceEnablePeerAccess")) return false;
  // What comes from a pool has access rules of its own.
  return !peer.properties().has_memory_pools ||
         is_done(cuda_.set_pool_access(peer.memory_pool(), ordinal_), "cudaMemPoolSetAccess");
}

CudaStream gpu_stream_of(const Tensor& tensor) {
  GpuDevice& device = GpuDevice::of(tensor.device());
  const std::optional<StreamView> stream = tensor.stream();
  return stream.has_value() ? stream->cuda() : device.own_stream();
}

bool is_captured(GpuDevice& device, CudaStream stream) {
  CudaApi& cuda = device.cuda();
  const CurrentCudaDevice current(cuda, device.ordinal());
  CudaCaptureStatus status = CudaCaptureStatus::NONE;
  require_cuda(cuda, cuda.stream_get_capture(stream, &status), "cudaStreamIsCapturing");
  if (status == CudaCaptureStatus::INVALIDATED) {
    require_cuda(cuda, CudaStatus::STREAM_CAPTURE_INVALIDATED,
                 "the stream of an operation, which is being captured");
  }
  return status == CudaCaptureStatus::ACTIVE;
}

bool is_captured(const Tensor& tensor) {
  return !tensor.device().is_host() &&
         is_captured(GpuDevice::of(tensor.device()), gpu_stream_of(tensor));
}

}  // namespace crossdevice::detail
