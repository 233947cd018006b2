// SPDX-License-Identifier: Apache-2.0
#if defined(CROSSDEVICE_WITH_UCX)

#include "comm/ucx/ucx_library.h"

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/given_or_found.h"

namespace crossdevice::detail {
namespace {

/// What handles each signal now; set anew at the end.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() {
    for (std::size_t i = 1; i < actions_.size(); ++i) {
      struct sigaction action {};
      if (::sigaction(static_cast<int>(i), nullptr, &action) == 0) actions_[i] = action;
    }
  }
  ~KeptSignalHandlers() {
    for (std::size_t i = 1; i < actions_.size(); ++i) {
      if (actions_[i].has_value()) (void)::sigaction(static_cast<int>(i), &*actions_[i], nullptr);
    }
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  std::array<std::optional<struct sigaction>, 65> actions_;
};

std::string last_error() {
  const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the thread's own in glibc
  return text == nullptr ? "unknown error" : text;
}

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) throw UnavailableError(fmt::format("UCX has no {}", name));
}

UcxLibrary load() {
  const KeptSignalHandlers handlers;
  void* const ucs = ::dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const ucp =
      ucs == nullptr ? nullptr : ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (ucp == nullptr) throw UnavailableError("UCX cannot be loaded: " + last_error());
  UcxLibrary all{};
  find(ucp, "ucp_config_read", all.config_read);
  find(ucp, "ucp_config_modify", all.config_modify);
  find(ucp, "ucp_config_release", all.config_release);
  find(ucp, "ucp_init_version", all.init_version);
  find(ucp, "ucp_cleanup", all.cleanup);
  find(ucp, "ucp_worker_create", all.worker_create);
  find(ucp, "ucp_worker_destroy", all.worker_destroy);
  find(ucp, "ucp_worker_get_address", all.worker_get_address);
  find(ucp, "ucp_worker_release_address", all.worker_release_address);
  find(ucp, "ucp_worker_get_efd", all.worker_get_efd);
  find(ucp, "ucp_worker_arm", all.worker_arm);
  find(ucp, "ucp_worker_progress", all.worker_progress);
  find(ucp, "ucp_worker_set_am_recv_handler", all.worker_set_am_recv_handler);
  find(ucp, "ucp_ep_create", all.ep_create);
  find(ucp, "ucp_ep_flush_nbx", all.ep_flush_nbx);
  find(ucp, "ucp_ep_close_nbx", all.ep_close_nbx);
  find(ucp, "ucp_am_send_nbx", all.am_send_nbx);
  find(ucp, "ucp_request_check_status", all.request_check_status);
  find(ucp, "ucp_request_free", all.request_free);
  find(ucs, "ucs_status_string", all.status_string);
  return all;
}

}  // namespace

const UcxLibrary& ucx_library() {
  static auto& instance =
      *new GivenOrFound<UcxLibrary>("UCX's functions");  // never destroyed: others may still use it
  return instance.get(load);
}

}  // namespace crossdevice::detail

#endif
