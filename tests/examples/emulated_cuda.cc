// SPDX-License-Identifier: Apache-2.0
// Runs an example on emulated GPUs: PROGRAM NUM_GPUS [nccl]. It fails where it does what CUDA leaves undefined, and where it passes without a copy from or
// to a GPU, or, with NCCL, without NCCL.
#include "examples/emulated_cuda.h"
#undef main

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "crossdevice/comm/nccl_library.h"

#include "support/emulated_gpus.h"

namespace {

using crossdevice::detail::CudaStatus;
using crossdevice::testing::emulated_cuda;
using crossdevice::testing::emulated_nccl;

cudaError_t error_of(CudaStatus status) { return static_cast<cudaError_t>(status); }

/// Nothing that an example enqueues takes so long.
constexpr std::chrono::seconds kLimit{60};

/// NCCL's functions that an example finds by their names, with the emulation's types for NCCL's.
extern "C" crossdevice::detail::NcclStatus emulated_nccl_comm_init_all(
    crossdevice::detail::NcclComm* communicators, int count, const int* devices) {
  using crossdevice::detail::NcclStatus;
  crossdevice::detail::NcclUniqueId id;
  NcclStatus status = emulated_nccl().get_unique_id(&id);
  const int before = emulated_cuda().current_device();
  (void)emulated_nccl().group_start();
  for (int rank = 0; rank < count && status == NcclStatus::SUCCESS; ++rank) {
    (void)emulated_cuda().set_device(devices == nullptr ? rank : devices[rank]);
    status = emulated_nccl().comm_init_rank(&communicators[rank], count, id, rank, "example");
  }
  const NcclStatus end = emulated_nccl().group_end();
  (void)emulated_cuda().set_device(before);
  return status == NcclStatus::SUCCESS ? end : status;
}
extern "C" crossdevice::detail::NcclStatus emulated_nccl_comm_destroy(
    crossdevice::detail::NcclComm communicator) {
  return emulated_nccl().comm_destroy(communicator);
}

bool was_lawful() {
  bool is_lawful = emulated_cuda().synchronize(kLimit);
  if (!is_lawful) std::fprintf(stderr, "something enqueued does not end\n");
  for (const std::string& violation : emulated_cuda().violations()) {
    std::fprintf(stderr, "violation: %s\n", violation.c_str());
    is_lawful = false;
  }
  for (const std::string& mismatch : emulated_nccl().mismatches()) {
    std::fprintf(stderr, "mismatch: %s\n", mismatch.c_str());
    is_lawful = false;
  }
  return is_lawful;
}

}  // namespace

extern "C" {

cudaError_t emulated_cudaFree(void* pointer) {
  const bool is_done = emulated_cuda().synchronize(kLimit);  // as cudaFree waits
  emulated_cuda().free_device(pointer);
  return is_done ? cudaSuccess : cudaErrorLaunchTimeout;
}
cudaError_t emulated_cudaFreeHost(void* pointer) {
  return error_of(emulated_cuda().free_host(pointer));
}
cudaError_t emulated_cudaGetDeviceCount(int* count) {
  return error_of(emulated_cuda().get_device_count(count));
}
const char* emulated_cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = emulated_cuda().error_text(static_cast<CudaStatus>(error));
  return text.c_str();
}
cudaError_t emulated_cudaHostAlloc(void** pointer, std::size_t size_bytes, unsigned) {
  return error_of(emulated_cuda().malloc_host(pointer, size_bytes));
}
cudaError_t emulated_cudaMalloc(void** pointer, std::size_t size_bytes) {
  *pointer = emulated_cuda().malloc_device(emulated_cuda().current_device(), size_bytes);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t emulated_cudaMemcpyAsync(void* destination, const void* source, std::size_t size_bytes,
                                     cudaMemcpyKind, cudaStream_t stream) {
  return error_of(emulated_cuda().memcpy_async(destination, source, size_bytes, stream));
}
cudaError_t emulated_cudaSetDevice(int device) {
  return error_of(emulated_cuda().set_device(device));
}
cudaError_t emulated_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;  // the emulation has no other
  return error_of(emulated_cuda().stream_create(stream));
}
cudaError_t emulated_cudaStreamDestroy(cudaStream_t stream) {
  return error_of(emulated_cuda().stream_destroy(stream));
}
cudaError_t emulated_cudaStreamSynchronize(cudaStream_t stream) {
  return emulated_cuda().synchronize(stream, kLimit)
             ? error_of(emulated_cuda().stream_query(stream))
             : cudaErrorLaunchTimeout;
}

void* emulated_dlopen(const char* file, int) noexcept {
  return file == emulated_nccl().path() ? &emulated_nccl() : nullptr;
}
void* emulated_dlsym(void* library, const char* name) noexcept {
  if (library != &emulated_nccl()) return nullptr;
  const std::string_view wanted = name;
  if (wanted == "ncclCommInitAll") return reinterpret_cast<void*>(&emulated_nccl_comm_init_all);
  if (wanted == "ncclCommDestroy") return reinterpret_cast<void*>(&emulated_nccl_comm_destroy);
  return nullptr;
}

}  // extern "C"

int example_main();

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool has_nccl = argc > 2 && argv[2] == std::string_view("nccl");
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  if (has_nccl) ::setenv("CROSSDEVICE_STRICT", "1", /*overwrite=*/1);
  crossdevice::testing::install_emulated_gpus(std::stoi(argv[1]));
  if (!has_nccl) {
    crossdevice::detail::set_nccl_library({nullptr, "this example is run without NCCL"});
  }
  bool is_right = example_main() == 0 && was_lawful();
  std::vector<const char*> needed{"cuda.memcpy_async"};
  if (has_nccl) needed.push_back("nccl.all_reduce");
  for (const char* const call : needed) {
    if (emulated_cuda().calls().count(call) > 0) continue;
    std::fprintf(stderr, "the example has passed without %s\n", call);
    is_right = false;
  }
  return is_right ? 0 : 1;
}
