// SPDX-License-Identifier: Apache-2.0
#include "device/null_gpus.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "crossdevice/comm/nccl_api.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/cuda_api.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/kernel_api.h"

namespace crossdevice::bench {

namespace {

using detail::CudaStatus;
using detail::CudaStream;
using detail::NcclComm;
using detail::NcclStatus;

std::atomic<std::size_t> num_launches{0};
std::atomic<std::size_t> num_others{0};

CudaStatus launched() {
  num_launches.fetch_add(1, std::memory_order_relaxed);
  return CudaStatus::SUCCESS;
}
CudaStatus done() {
  num_others.fetch_add(1, std::memory_order_relaxed);
  return CudaStatus::SUCCESS;
}

/// Handles that nobody looks into.
template <class Handle>
void make_handle(Handle* handle) {
  static std::atomic<std::size_t> next{1};
  *handle = reinterpret_cast<Handle>(next.fetch_add(1));
}

class NullCuda final : public detail::CudaApi {
 public:
  explicit NullCuda(int count) : count_(count) {}

  CudaStatus driver_version(int* version) override {
    *version = 13000;
    return done();
  }
  CudaStatus runtime_version(int* version) override {
    *version = 13000;
    return done();
  }
  CudaStatus get_device_count(int* count) override {
    *count = count_;
    return done();
  }
  CudaStatus get_device_properties(detail::CudaDeviceProperties* properties, int device) override {
    properties->name = "no GPU";
    properties->uuid.fill(static_cast<unsigned char>(device + 1));
    properties->compute_capability = 90;
    properties->total_memory_bytes = std::size_t{1} << 40U;
    properties->has_memory_pools = true;
    return done();
  }
  CudaStatus get_device(int* device) override {
    *device = current_;
    return done();
  }
  CudaStatus set_device(int device) override {
    current_ = device;
    return done();
  }
  CudaStatus can_access_peer(bool* can, int /*device*/, int /*peer*/) override {
    *can = true;
    return done();
  }
  CudaStatus enable_peer_access(int /*peer*/) override { return done(); }
  CudaStatus get_pointer_attributes(detail::CudaPointerAttributes* /*attributes*/,
                                    const void* /*pointer*/) override {
    return done();
  }
  [[nodiscard]] std::string error_text(CudaStatus /*status*/) const override { return "nothing"; }
  CudaStatus create_pool(detail::CudaPool* pool, int /*device*/) override {
    make_handle(pool);
    return done();
  }
  CudaStatus set_pool_access(detail::CudaPool /*pool*/, int /*device*/) override { return done(); }
  CudaStatus trim_pool(detail::CudaPool /*pool*/) override { return done(); }
  CudaStatus get_pool_use(detail::CudaPoolUse* /*use*/, detail::CudaPool /*pool*/) override {
    return done();
  }
  CudaStatus malloc_from_pool_async(void** pointer, std::size_t size_bytes,
                                    detail::CudaPool /*pool*/, CudaStream /*stream*/) override {
    *pointer = std::aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    return *pointer == nullptr ? CudaStatus::OUT_OF_MEMORY : done();
  }
  CudaStatus free_async(void* pointer, CudaStream /*stream*/) override {
    std::free(pointer);
    return done();
  }
  CudaStatus malloc_host(void** pointer, std::size_t size_bytes) override {
    *pointer = std::malloc(size_bytes);
    return done();
  }
  CudaStatus free_host(void* pointer) override {
    std::free(pointer);
    return done();
  }
  CudaStatus memcpy_async(void* /*destination*/, const void* /*source*/, std::size_t /*size_bytes*/,
                          CudaStream /*stream*/) override {
    return launched();
  }
  CudaStatus memset_async(void* /*destination*/, int /*byte*/, std::size_t /*size_bytes*/,
                          CudaStream /*stream*/) override {
    return launched();
  }
  CudaStatus stream_create(CudaStream* stream) override {
    make_handle(stream);
    return done();
  }
  CudaStatus stream_destroy(CudaStream /*stream*/) override { return done(); }
  CudaStatus stream_query(CudaStream /*stream*/) override { return done(); }
  CudaStatus stream_wait_event(CudaStream /*stream*/, detail::CudaEvent /*event*/) override {
    return done();
  }
  CudaStatus stream_get_capture(CudaStream /*stream*/, detail::CudaCaptureStatus* status) override {
    *status = detail::CudaCaptureStatus::NONE;
    return done();
  }
  CudaStatus launch_host_function(CudaStream /*stream*/, void (*function)(void*),
                                  void* argument) override {
    function(argument);
    return launched();
  }
  CudaStatus exchange_capture_mode(detail::CudaCaptureMode* /*mode*/) override { return done(); }
  CudaStatus event_create(detail::CudaEvent* event) override {
    make_handle(event);
    return done();
  }
  CudaStatus event_create_with_timing(detail::CudaEvent* event) override {
    return event_create(event);
  }
  CudaStatus event_elapsed(float* milliseconds, detail::CudaEvent /*begin*/,
                           detail::CudaEvent /*end*/) override {
    *milliseconds = 0;
    return done();
  }
  CudaStatus event_destroy(detail::CudaEvent /*event*/) override { return done(); }
  CudaStatus event_record(detail::CudaEvent /*event*/, CudaStream /*stream*/) override {
    return done();
  }
  CudaStatus event_query(detail::CudaEvent /*event*/) override { return CudaStatus::SUCCESS; }
  CudaStatus event_synchronize(detail::CudaEvent /*event*/) override { return CudaStatus::SUCCESS; }

 private:
  const int count_;
  inline static thread_local int current_ = 0;
};

class NullKernels final : public detail::KernelApi {
 public:
  CudaStatus copy_ranges(const detail::CopyLaunch& /*launch*/) override { return launched(); }
  CudaStatus reduce(const detail::ReduceLaunch& /*launch*/) override { return launched(); }
  CudaStatus reduce_many(const detail::ManyReduceLaunch& /*launch*/, bool& has_launched) override {
    has_launched = true;
    return launched();
  }
};

class NullNccl final : public detail::NcclApi {
 public:
  [[nodiscard]] detail::NcclVersion version() const override { return 22809; }
  [[nodiscard]] std::string path() const override { return "nowhere"; }
  [[nodiscard]] std::string error_text(NcclStatus /*status*/) const override { return "nothing"; }
  [[nodiscard]] std::string last_error(NcclComm /*comm*/) const override { return ""; }
  NcclStatus get_unique_id(detail::NcclUniqueId* /*id*/) override { return NcclStatus::SUCCESS; }
  NcclStatus comm_init_rank(NcclComm* comm, int /*num_ranks*/, const detail::NcclUniqueId& /*id*/,
                            int /*rank*/, const char* /*name*/) override {
    make_handle(comm);
    return NcclStatus::SUCCESS;
  }
  NcclStatus comm_finalize(NcclComm /*comm*/) override { return NcclStatus::SUCCESS; }
  NcclStatus comm_destroy(NcclComm /*comm*/) override { return NcclStatus::SUCCESS; }
  NcclStatus comm_abort(NcclComm /*comm*/) override { return NcclStatus::SUCCESS; }
  NcclStatus comm_revoke(NcclComm /*comm*/) override { return NcclStatus::SUCCESS; }
  NcclStatus comm_get_async_error(NcclComm /*comm*/, NcclStatus* error) override {
    *error = NcclStatus::SUCCESS;
    return NcclStatus::SUCCESS;
  }
  NcclStatus comm_user_rank(NcclComm /*comm*/, int* rank) override {
    *rank = 0;
    return NcclStatus::SUCCESS;
  }
  NcclStatus comm_count(NcclComm /*comm*/, int* num_ranks) override {
    *num_ranks = 1;
    return NcclStatus::SUCCESS;
  }
  NcclStatus comm_cu_device(NcclComm /*comm*/, int* device) override {
    *device = 0;
    return NcclStatus::SUCCESS;
  }
  NcclStatus group_start() override { return NcclStatus::SUCCESS; }
  NcclStatus group_end() override {
    (void)launched();
    return NcclStatus::SUCCESS;
  }
  NcclStatus all_reduce(const void*, void*, std::size_t, detail::NcclDataType, detail::NcclRedOp,
                        NcclComm, CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus reduce(const void*, void*, std::size_t, detail::NcclDataType, detail::NcclRedOp, int,
                    NcclComm, CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus broadcast(const void*, void*, std::size_t, detail::NcclDataType, int, NcclComm,
                       CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus all_gather(const void*, void*, std::size_t, detail::NcclDataType, NcclComm,
                        CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus reduce_scatter(const void*, void*, std::size_t, detail::NcclDataType,
                            detail::NcclRedOp, NcclComm, CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus send(const void*, std::size_t, detail::NcclDataType, int, NcclComm,
                  CudaStream) override {
    return NcclStatus::SUCCESS;
  }
  NcclStatus receive(void*, std::size_t, detail::NcclDataType, int, NcclComm, CudaStream) override {
    return NcclStatus::SUCCESS;
  }
};

}  // namespace

void install_null_gpus(int count) {
  detail::set_gpu_platform(
      {std::make_shared<NullCuda>(count), std::make_shared<NullKernels>(), ""});
  detail::set_nccl_library({std::make_shared<NullNccl>(), ""});
}

VendorCalls vendor_calls() {
  return {.launches = num_launches.load(std::memory_order_relaxed),
          .others = num_others.load(std::memory_order_relaxed)};
}

}  // namespace crossdevice::bench
