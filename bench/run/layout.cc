// SPDX-License-Identifier: Apache-2.0
#include "run/layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace crossdevice::run {
namespace {

// Nobody else is in a new namespace, so that any port is free that the kernel does not give out by itself.
constexpr std::uint16_t kNamespacePort = 61440;

}  // namespace

HostPlace place_on_host(int rank, int num_workers, int num_hosts) {
  const int least = num_workers / num_hosts;
  const int num_larger = num_workers % num_hosts;
  const int in_larger = num_larger * (least + 1);  // workers on hosts that have one more
  if (rank < in_larger) {
    return {.host = rank / (least + 1),
            .local_rank = rank % (least + 1),
            .local_num_workers = least + 1};
  }
  return {.host = num_larger + (rank - in_larger) / least,
          .local_rank = (rank - in_larger) % least,
          .local_num_workers = least};
}

Layout::Layout(const Arguments& arguments, std::string job)
    : num_workers_(arguments.num_workers),
      num_hosts_(std::max(1, arguments.num_namespaces)),
      job_(std::move(job)) {
  if (arguments.num_namespaces > 0) {
    namespaces_.emplace(arguments.num_namespaces, arguments.rate);
    chief_address_ = fmt::format("{}:{}", NetworkNamespaces::address(0), kNamespacePort);
  } else {
    port_.emplace(detail::ReservedPort::Reach::ALL_INTERFACES);
    chief_address_ = port_->address();
  }
}

WorkerPlace Layout::place(int rank) const {
  const HostPlace on_host = place_on_host(rank, num_workers_, num_hosts_);
  WorkerPlace place;
  place.rank = rank;
  place.num_workers = num_workers_;
  place.local_rank = on_host.local_rank;
  place.local_num_workers = on_host.local_num_workers;
  place.chief_address = chief_address_;
  if (namespaces_.has_value()) {
    place.host_id = fmt::format("{}.{}", job_, on_host.host);
    place.interface = NetworkNamespaces::kInterface;
  }
  return place;
}

int Layout::network_namespace(int rank) const {
  if (!namespaces_.has_value()) return -1;
  return namespaces_->descriptor(place_on_host(rank, num_workers_, num_hosts_).host);
}

}  // namespace crossdevice::run
