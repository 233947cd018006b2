// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/message_transport.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/tcp_transport.h"
#include "crossdevice/comm/ucx_transport.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"

namespace crossdevice {
namespace {

/// Does not load UCX where there is no device for it.
bool can_use_rdma() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator() && why_no_ucx().empty();
}

}  // namespace

std::unique_ptr<Transport> make_message_transport(std::shared_ptr<Cluster> cluster,
                                                  const Deadline& deadline) {
  std::string mine = environment().transport;
  if (mine.empty() && can_use_rdma()) mine = "rdma";
  const std::vector<std::string> all = cluster->all_gather_bytes(mine, deadline);
  int first = -1;  // who says it
  bool have_all_rdma = true;
  for (int rank = 0; rank < cluster->num_workers(); ++rank) {
    const std::string& each = all[static_cast<std::size_t>(rank)];
    have_all_rdma = have_all_rdma && each == "rdma";
    if (each.empty() || each == "rdma") continue;
    if (first < 0) first = rank;
    const std::string& wanted = all[static_cast<std::size_t>(first)];
    if (each != wanted) {
      throw ValueError(fmt::format("CROSSDEVICE_TRANSPORT is {} in {}, but {} in {}", wanted,
                                   to_string(cluster->worker(first)), each,
                                   to_string(cluster->worker(rank))));
    }
  }
  if (first < 0 && have_all_rdma && cluster->rank() == 0) {
    log(LogSeverity::INFO,
        "all workers have UCX and an RDMA device: CROSSDEVICE_TRANSPORT=ucx sends over them");
  }
  const bool is_ucx = first >= 0 && all[static_cast<std::size_t>(first)] == "ucx";
  return is_ucx ? make_ucx_transport(std::move(cluster), deadline)
                : make_tcp_transport(std::move(cluster), deadline);
}

}  // namespace crossdevice
