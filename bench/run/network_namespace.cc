// SPDX-License-Identifier: Apache-2.0
#include "run/network_namespace.h"

#include <cerrno>
#include <stdexcept>

#include <fcntl.h>
#include <sched.h>

#include "run/system_error.h"

namespace crossdevice::run {

Descriptor current_network_namespace() {
  // Not that of "self", which is the process's first thread.
  Descriptor found(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!found.is_open()) throw system_failure("open the network namespace");
  return found;
}

Descriptor new_network_namespace(const std::string& purpose) {
  if (::unshare(CLONE_NEWNET) == 0) return current_network_namespace();
  const int error = errno;
  if (error == EPERM) throw std::runtime_error(purpose + " needs root (CAP_SYS_ADMIN)");
  if (error == EINVAL) {
    throw std::runtime_error(purpose + ": the kernel has no network namespaces (CONFIG_NET_NS)");
  }
  throw system_failure("make a network namespace", error);
}

void enter_network_namespace(int descriptor) {
  if (::setns(descriptor, CLONE_NEWNET) != 0) throw system_failure("enter a network namespace");
}

NetworkExcursion::NetworkExcursion() : home_(current_network_namespace()) {}

NetworkExcursion::~NetworkExcursion() { ::setns(home_.get(), CLONE_NEWNET); }

}  // namespace crossdevice::run
