// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_gpus.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <sys/types.h>
#include <unistd.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::testing {
namespace {

struct EmulatedGpus {
  explicit EmulatedGpus(int count) : cuda(std::make_shared<EmulatedCuda>(count)) {}
  const ::pid_t process = ::getpid();
  std::shared_ptr<EmulatedCuda> cuda;
  std::shared_ptr<EmulatedKernels> kernels = std::make_shared<EmulatedKernels>(cuda);
  std::shared_ptr<EmulatedNccl> nccl = std::make_shared<EmulatedNccl>(cuda);
};

// Never destroyed: the library keeps the tables after main.
EmulatedGpus* installed = nullptr;

std::atomic<bool> mismatches_are_allowed{false};  // orders nothing

EmulatedGpus& gpus() {
  if (installed == nullptr) throw std::logic_error("install_emulated_gpus() was not called");
  return *installed;
}

// A forked child has the tables, but none of their threads.
void end_threads() {
  if (::getpid() == installed->process) installed->cuda->stop();
}

}  // namespace

void install_emulated_gpus(int count) {
  if (installed != nullptr) throw std::logic_error("install_emulated_gpus() was called twice");
  static auto& instance = *new EmulatedGpus(count);
  installed = &instance;
  detail::set_gpu_platform({instance.cuda, instance.kernels, ""});
  detail::set_nccl_library({instance.nccl, ""});
  (void)std::atexit(end_threads);
}

bool has_emulated_gpus() { return installed != nullptr; }

void allow_mismatches() { mismatches_are_allowed = true; }
bool may_mismatch() { return mismatches_are_allowed; }

EmulatedCuda& emulated_cuda() { return *gpus().cuda; }
EmulatedKernels& emulated_kernels() { return *gpus().kernels; }
EmulatedNccl& emulated_nccl() { return *gpus().nccl; }

}  // namespace crossdevice::testing
