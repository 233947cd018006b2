// SPDX-License-Identifier: Apache-2.0
/// Hosts on one machine, each a network namespace, whose packets all go through a process of this program: so that links can be cut, slowed down and made to lose
/// packets also in kernels that cannot do it themselves (netem, nftables).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "chaos/link_traffic.h"
#include "run/descriptor.h"

namespace crossdevice::chaos {

/// Each namespace has a TUN device, whose other end the process holds: it takes IP packets out of each and puts them into those they are for, as LinkTraffic has
/// it. Nothing has a name outside: namespaces go with the last process and the last descriptor in them, devices and the process with this object.
class LinkRelay {
 public:
  static constexpr int kMaxHosts = 64;
  /// The device of each namespace.
  static constexpr const char* kInterface = "eth0";

  /// Errors   std::runtime_error: not root; no /dev/net/tun; whatever else the system refuses.
  /// Threads  the process must have no other: it forks, and the calling thread is in other namespaces meanwhile.
  LinkRelay(int num_hosts, std::uint64_t seed);
  /// Ends the process.
  ~LinkRelay();
  LinkRelay(const LinkRelay&) = delete;
  LinkRelay& operator=(const LinkRelay&) = delete;

  /// Why there can be none here; empty: there can.
  [[nodiscard]] static std::string obstacle();

  /// A host's namespace, for setns(); closes on exec.
  [[nodiscard]] int descriptor(int host) const {
    return namespaces_[static_cast<std::size_t>(host)].get();
  }
  /// The address of a host that the others see.
  [[nodiscard]] static std::string address(int host);
  [[nodiscard]] pid_t process() const { return process_; }

  /// In force when it returns, for what is sent from then on.
  ///
  /// Errors   std::runtime_error: the process has died.
  void set(int host, const LinkPolicy& policy);
  /// Whether anything passes between two hosts; as set().
  void set_between(int a, int b, bool carries);
  /// Errors   as set().
  [[nodiscard]] LinkCounts counts(int host);

 private:
  std::vector<run::Descriptor> namespaces_;
  run::Descriptor control_;
  pid_t process_ = 0;
};

}  // namespace crossdevice::chaos
