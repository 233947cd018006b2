// SPDX-License-Identifier: Apache-2.0
/// Over what UCX carries bytes, for tests that need no RDMA device.
#pragma once

#include <cstdlib>
#include <string>

namespace crossdevice::testing {

inline constexpr const char* kUcxSharedMemory = "posix,sysv,self";
inline constexpr const char* kUcxTcp = "tcp,self";

/// What a user would set; read by UCX whenever a transport begins, and inherited by processes.
inline void choose_ucx(const char* transports) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread is there
  ::setenv("UCX_TLS", transports, 1);
  for (const char* const each : {"UCX_POSIX_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING"}) {
    if (std::string(transports) == kUcxSharedMemory) {
      ::setenv(each, "y", 1);  // or else it does not count as reporting the loss of a peer
    } else {
      ::unsetenv(each);
    }
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace crossdevice::testing
