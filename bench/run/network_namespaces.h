// SPDX-License-Identifier: Apache-2.0
/// Network namespaces on one machine that see each other and nothing else, as if each were a host on one switch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "run/descriptor.h"

namespace crossdevice::run {

enum class AddressFamily { IPV4, IPV6 };

/// K namespaces and one more with a bridge between them; this process's own namespace gets no device, not even for a moment. None has a name
/// anywhere: the kernel removes a namespace with the last descriptor and the last process in it, so that nothing is left however this process ends.
class NetworkNamespaces {
 public:
  /// The device of each namespace that leads to the others.
  static constexpr const char* kInterface = "eth0";

  /// `rate` limits every link, each way (tc's token bucket filter); empty: no limit. `family`: that of the links' addresses; they have none of the other.
  ///
  /// Errors   std::runtime_error: not root; the kernel, or the programs ip and tc, lack something, and what.
  /// Threads  the process must have no other: the calling thread is in other namespaces meanwhile.
  NetworkNamespaces(int count, const std::string& rate, AddressFamily family = AddressFamily::IPV4);

  /// For setns(); closes on exec.
  [[nodiscard]] int descriptor(int index) const {
    return namespaces_[static_cast<std::size_t>(index)].get();
  }
  /// The address that the others see.
  [[nodiscard]] static std::string address(int index, AddressFamily family = AddressFamily::IPV4);

 private:
  Descriptor switch_;
  std::vector<Descriptor> namespaces_;
};

}  // namespace crossdevice::run
