// SPDX-License-Identifier: Apache-2.0
#if defined(CROSSDEVICE_WITH_UCX)

#include "comm/ucx/ucx_library.h"

#include <array>
#include <csignal>
#include <optional>

#include <dlfcn.h>
#include <fmt/format.h>

#include "crossdevice/core/error.h"

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

struct Loaded {
  UcxLibrary library{};
  std::string why;
};

std::string last_error() {
  const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the thread's own in glibc
  return text == nullptr ? "unknown error" : text;
}

template <class Function>
void find(void* handle, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && why.empty()) why = fmt::format("UCX has no {}", name);
}

Loaded load() {
  Loaded loaded;
  const KeptSignalHandlers handlers;
  void* const ucs = ::dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const ucp =
      ucs == nullptr ? nullptr : ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (ucp == nullptr) {
    const std::string text = last_error();
    loaded.why = "UCX cannot be loaded: " + text;
    // Nothing that lasts: who asks again finds it, perhaps. The loader has no code for it.
    const bool is_exhausted = text.find("failed to map segment") != std::string::npos ||
                              text.find("annot allocate memory") != std::string::npos;
    if (is_exhausted) throw ResourceExhaustedError(loaded.why);
    return loaded;
  }
  UcxLibrary& all = loaded.library;
  std::string& why = loaded.why;
  find(ucp, "ucp_config_read", all.config_read, why);
  find(ucp, "ucp_config_modify", all.config_modify, why);
  find(ucp, "ucp_config_release", all.config_release, why);
  find(ucp, "ucp_init_version", all.init_version, why);
  find(ucp, "ucp_cleanup", all.cleanup, why);
  find(ucp, "ucp_worker_create", all.worker_create, why);
  find(ucp, "ucp_worker_destroy", all.worker_destroy, why);
  find(ucp, "ucp_worker_get_address", all.worker_get_address, why);
  find(ucp, "ucp_worker_release_address", all.worker_release_address, why);
  find(ucp, "ucp_worker_get_efd", all.worker_get_efd, why);
  find(ucp, "ucp_worker_arm", all.worker_arm, why);
  find(ucp, "ucp_worker_progress", all.worker_progress, why);
  find(ucp, "ucp_worker_set_am_recv_handler", all.worker_set_am_recv_handler, why);
  find(ucp, "ucp_ep_create", all.ep_create, why);
  find(ucp, "ucp_ep_flush_nbx", all.ep_flush_nbx, why);
  find(ucp, "ucp_ep_close_nbx", all.ep_close_nbx, why);
  find(ucp, "ucp_am_send_nbx", all.am_send_nbx, why);
  find(ucp, "ucp_request_check_status", all.request_check_status, why);
  find(ucp, "ucp_request_free", all.request_free, why);
  find(ucs, "ucs_status_string", all.status_string, why);
  return loaded;
}

}  // namespace

const UcxLibrary* ucx_library(std::string& why) {
  static const Loaded* const loaded =
      new Loaded(load());  // never destroyed: others may still use it
  why = loaded->why;
  return why.empty() ? &loaded->library : nullptr;
}

}  // namespace crossdevice::detail

#endif
