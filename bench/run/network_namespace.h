// SPDX-License-Identifier: Apache-2.0
/// The network namespace of the calling thread: a new one, another one, and back.
#pragma once

#include <string>

#include "run/descriptor.h"

namespace crossdevice::run {

/// For setns(); closes on exec.
[[nodiscard]] Descriptor current_network_namespace();

/// The calling thread is in it afterwards. It has no name anywhere: the kernel removes it with the last descriptor and the last process in it.
///
/// Errors   std::runtime_error: "PURPOSE needs root (CAP_SYS_ADMIN)", or what else the system refuses.
[[nodiscard]] Descriptor new_network_namespace(const std::string& purpose);

void enter_network_namespace(int descriptor);

/// Goes back to where the thread was.
class NetworkExcursion {
 public:
  NetworkExcursion();
  ~NetworkExcursion();
  NetworkExcursion(const NetworkExcursion&) = delete;
  NetworkExcursion& operator=(const NetworkExcursion&) = delete;

 private:
  Descriptor home_;
};

}  // namespace crossdevice::run
