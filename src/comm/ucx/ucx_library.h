// SPDX-License-Identifier: Apache-2.0
/// UCX's functions, from libraries that are loaded when somebody asks for them: who does not use UCX has none of it in the process.
#pragma once

#include <ucp/api/ucp.h>

namespace crossdevice::detail {

/// Named as in UCX, without "ucp_".
struct UcxLibrary {
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_modify) config_modify;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_get_address) worker_get_address;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_am_send_nbx) am_send_nbx;
  decltype(&::ucp_request_check_status) request_check_status;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucs_status_string) status_string;
};

/// Never unloaded. Signal handlers stay as they were, though UCX sets its own when it is loaded.
///
/// Errors   UnavailableError: there is none, or it cannot be loaded now; says why. The next call tries again: a process that lacked a descriptor or memory may
///          have them then.
/// Threads  any.
[[nodiscard]] const UcxLibrary& ucx_library();

}  // namespace crossdevice::detail
