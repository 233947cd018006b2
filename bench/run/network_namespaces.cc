// SPDX-License-Identifier: Apache-2.0
#include "run/network_namespaces.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "run/arguments.h"
#include "run/batch_program.h"
#include "run/network_namespace.h"

namespace crossdevice::run {
namespace {

constexpr double kBurstSeconds = 0.002;  // what a link may send at once after a rest
// The largest packet that the system makes, 64 KiB with the heads of all its frames: a bucket that cannot hold it cuts it into these, as no network card has
// the processor do.
constexpr double kMinBurstBytes = 70000;

/// The token bucket of one link's sending side.
std::string limit(const std::string& device, const std::string& rate) {
  const double burst_bytes = std::max(kMinBurstBytes, bits_per_second(rate) / 8 * kBurstSeconds);
  return fmt::format("qdisc add dev {} root tbf rate {} burst {:.0f} latency 50ms\n", device, rate,
                     burst_bytes);
}

/// With the length of the network's part. IPv6 would first ask for a second whether somebody else has the address, which nobody has.
std::string address_and_prefix(int index, AddressFamily family) {
  const std::string address = NetworkNamespaces::address(index, family);
  return family == AddressFamily::IPV4 ? address + "/24" : address + "/64 nodad";
}

void set_limits(const std::string& limits) {
  run_batch("tc", limits,
            "limit a link's rate with a token bucket filter (in kernels with CONFIG_NET_SCH_TBF)");
}

}  // namespace

std::string NetworkNamespaces::address(int index, AddressFamily family) {
  return family == AddressFamily::IPV4 ? fmt::format("10.200.0.{}", index + 1)
                                       : fmt::format("fd77::{:x}", index + 1);
}

NetworkNamespaces::NetworkNamespaces(int count, const std::string& rate, AddressFamily family) {
  const NetworkExcursion excursion;
  switch_ = new_network_namespace("--netns");
  namespaces_.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) namespaces_.push_back(new_network_namespace("--netns"));

  enter_network_namespace(switch_.get());
  run_batch("ip", "link add switch type bridge\nlink set switch up\n",
            "make a bridge (in kernels with CONFIG_BRIDGE)");
  std::string links;
  std::string limits;
  for (int i = 0; i < count; ++i) {
    links += fmt::format(
        "link add port{0} type veth peer name {3} netns /proc/{1}/fd/{2}\n"
        "link set port{0} master switch up\n",
        i, ::getpid(), descriptor(i), kInterface);
    if (!rate.empty()) limits += limit(fmt::format("port{}", i), rate);
  }
  run_batch("ip", links, "join namespaces by pairs of devices (in kernels with CONFIG_VETH)");
  if (!rate.empty()) set_limits(limits);
  for (int i = 0; i < count; ++i) {
    enter_network_namespace(descriptor(i));
    run_batch("ip",
              fmt::format("link set lo up\naddr add {0} dev {1}\nlink set {1} up\n",
                          address_and_prefix(i, family), kInterface),
              "give a namespace its address");
    if (!rate.empty()) set_limits(limit(kInterface, rate));
  }
}

}  // namespace crossdevice::run
