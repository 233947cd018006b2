// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/transport.h"

#include <utility>

#include "crossdevice/device/shutdown.h"

#include "comm/detail/transport_kind.h"

namespace crossdevice {

Transport::Transport(std::unique_ptr<detail::TransportKind> kind) : kind_(std::move(kind)) {}
Transport::~Transport() {
  if (detail::is_forked_child()) {
    (void)kind_.release();  // its threads and connections are the parent's
  } else {
    kind_->close();
  }
}

int Transport::rank() const { return kind_->rank(); }
int Transport::num_ranks() const { return kind_->num_ranks(); }

void Transport::connect(std::span<const int> peers, const Deadline& deadline) {
  kind_->connect(peers, deadline);
}
void Transport::begin(const GroupOperationInfo& operation) { kind_->begin(operation); }
void Transport::send(int to, std::span<const std::byte> bytes, Transfer& transfer) {
  kind_->send(to, bytes, transfer);
}
void Transport::receive(int from, std::span<std::byte> bytes, Transfer& transfer) {
  kind_->receive(from, bytes, transfer);
}
void Transport::exchange(int with, std::span<const std::byte> out, Transfer& sending,
                         std::span<std::byte> in, Transfer& receiving, const Deadline& deadline) {
  kind_->exchange(with, out, sending, in, receiving, deadline);
}

bool Transport::poll() { return kind_->poll(); }
void Transport::look() { kind_->look(); }
void Transport::require_time_left(const Deadline& deadline) { kind_->require_time_left(deadline); }
void Transport::look_until(const Deadline& deadline) { kind_->look_until(deadline); }
void Transport::wait(const Deadline& deadline) { kind_->wait(deadline); }
void Transport::wait(Transfer& transfer, const Deadline& deadline) {
  kind_->wait(transfer, deadline);
}
Transfer* Transport::take_completed() { return kind_->take_completed(); }

void Transport::stop(StatusCode code, const std::string& text, std::vector<RankInfo> culprits) {
  kind_->stop({.code = code, .text = text, .culprits = std::move(culprits)});
}

TransportCounters Transport::counters() const { return kind_->counters(); }
std::span<const PeerTraffic> Transport::traffic_at_end() const { return kind_->traffic_at_end(); }

}  // namespace crossdevice
