// SPDX-License-Identifier: Apache-2.0
#if defined(CROSSDEVICE_WITH_UCX)

#include "comm/ucx/ucx_end.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/format_bytes.h"

#include "comm/detail/sleep_in_poll.h"
#include "comm/detail/spare_descriptors.h"

namespace crossdevice::detail {
namespace {

/// UCX reads files and lists devices when a context begins: one at a time, whoever asks.
std::mutex& opening() {
  static auto* const mutex = new std::mutex;  // never destroyed: transports may outlive main()
  return *mutex;
}

/// UCX ends the process where it gets no descriptor, or no memory for the stack of its thread; and where the loader lacks one, it has no code that says so.
void require_descriptors() {
  constexpr std::size_t kNeeded = 64;  // more than it takes
  const std::size_t num_spare = spare_descriptors(kNeeded).count;
  if (num_spare == kNeeded) return;
  throw ResourceExhaustedError(
      fmt::format("UCX is not started: of the {} file descriptors that it may need there are {}",
                  kNeeded, num_spare));
}

void require_memory() {
  constexpr std::size_t kBesideTheStack = std::size_t{16} << 20U;  // more than it takes
  pthread_attr_t attributes;
  std::size_t needed = kBesideTheStack;
  if (::pthread_getattr_default_np(&attributes) == 0) {
    std::size_t stack = 0;
    (void)::pthread_attr_getstacksize(&attributes, &stack);
    (void)::pthread_attr_destroy(&attributes);
    needed += stack;
  }
  void* const probe =
      ::mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) {
    throw ResourceExhaustedError(
        fmt::format("UCX is not started: the {} of memory that it may need are not there",
                    format_bytes(needed)));
  }
  (void)::munmap(probe, needed);
}

}  // namespace

UcxEnd::UcxEnd() {
  const std::lock_guard lock(opening());
  require_descriptors();
  require_memory();
  library_ = &ucx_library();
  try {
    ucp_config_t* config = nullptr;
    require(library_->config_read(nullptr, nullptr, &config), "its configuration");
    // Its TCP port takes anybody's bytes, and does not stand all of them. What is small enough for one packet is copied at once, so that nothing waits for memory
    // to be registered.
    ucs_status_t status = UCS_OK;
    if (process_environment()("UCX_TLS").value_or("").empty()) {
      status = library_->config_modify(config, "TLS", "^tcp");
    }
    (void)library_->config_modify(config, "ZCOPY_THRESH", "inf");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 0;
    if (status == UCS_OK) {
      status = library_->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    }
    library_->config_release(config);
    require(status, "a context");
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    require(library_->worker_create(context_, &worker_params, &worker_), "a worker");
    require(library_->worker_get_efd(worker_, &descriptor_), "a descriptor to wait on");
    ucp_address_t* address = nullptr;
    std::size_t size = 0;
    require(library_->worker_get_address(worker_, &address, &size), "an address");
    address_.assign(reinterpret_cast<const char*>(address), size);
    library_->worker_release_address(worker_, address);
  } catch (...) {
    close();
    throw;
  }
}

UcxEnd::~UcxEnd() {
  const std::lock_guard lock(opening());
  close();
}

void UcxEnd::close() noexcept {
  if (worker_ != nullptr) library_->worker_destroy(worker_);
  if (context_ != nullptr) library_->cleanup(context_);
  worker_ = nullptr;
  context_ = nullptr;
}

void UcxEnd::sleep(const EventDescriptor& event, Clock::time_point until) const {
  std::array<pollfd, 2> polled{{{.fd = event.get(), .events = POLLIN, .revents = 0},
                                {.fd = descriptor_, .events = POLLIN, .revents = 0}}};
  const Clock::time_point now = Clock::now();
  const int count = sleep_in_poll(polled, std::max(until, now) - now);
  if (count > 0 && polled[0].revents != 0) event.empty();
}

void UcxEnd::require(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  const std::string text =
      fmt::format("UCX does not start, it fails at {}: {}", what, library_->status_string(status));
  if (status == UCS_ERR_NO_MEMORY) throw ResourceExhaustedError(text);
  throw UnavailableError(text);
}

std::string why_no_ucx() {
  try {
    (void)ucx_library();
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}
UcxEndPtr open_ucx_end() { return std::make_shared<UcxEnd>(); }
std::string address_of(const UcxEnd& end) { return end.address(); }

}  // namespace crossdevice::detail

#endif
