// SPDX-License-Identifier: Apache-2.0
/// The transport of one member of a DrawnNetwork: what all transports have in common is the library's, the rest asks the network.
#include <utility>

#include "support/drawn_network.h"

namespace crossdevice::testing {
namespace {

using detail::state_of;
using detail::TransferState;
using detail::TransportFailure;
using detail::TransportKind;

class DrawnKind final : public TransportKind, private DrawnNetwork::Member {
 public:
  DrawnKind(DrawnNetwork& network, int rank, const std::vector<RankInfo>& members)
      : TransportKind(rank, members, false), network_(network) {
    network_.attach(index(), *this);
  }
  void close() override {
    network_.detach(index());
    forget_all();
  }

 protected:
  void open(std::span<const int> /*peers*/, const Deadline& /*deadline*/) override {}
  void start_send(Peer& peer, Transfer& transfer) override {
    peer.sends.push_back(transfer);
    network_.start_send(index(), index_of(peer), transfer, call());
    network_.pass(index());
  }
  void start_receive(Peer& peer, Transfer& transfer) override {
    peer.receives.push_back(transfer);
    network_.start_receive(index(), index_of(peer), transfer, call());
    network_.pass(index());
  }
  bool progress() override {
    network_.pass(index());
    num_seen_ = network_.num_events(index());
    bool has_moved = false;
    while (Transfer* const done = network_.take_done(index())) {
      const TransferState& state = state_of(*done);
      (state.is_send ? peer(state.peer).sends : peer(state.peer).receives).remove(*done);
      complete(*done);
      has_moved = true;
    }
    (void)for_active([&](int each) {
      if (network_.has_left(static_cast<std::size_t>(each)) &&
          !network_.may_still_end(index(), static_cast<std::size_t>(each))) {
        record_failure({.code = StatusCode::UNAVAILABLE,
                        .text = to_string(info_of(each)) + " is gone: it has left",
                        .culprits = {info_of(each)}});
      }
      return false;
    });
    return has_moved || network_.claims_progress();
  }
  /// How long a waiter spins is a matter of clocks, so it does not.
  [[nodiscard]] bool is_bulky() const override { return true; }
  void sleep(Clock::time_point /*until*/) override { network_.sleep(index(), num_seen_); }
  void wake() noexcept override { network_.wake(index()); }
  void tell(const TransportFailure& failure) noexcept override {
    network_.tell_all(index(), failure);
  }
  void let_go() noexcept override { network_.let_go(index()); }

 private:
  // DrawnNetwork::Member
  void hear(TransportFailure failure, int teller) override {
    if (failure.origin < 0) failure.origin = teller;
    record_failure(std::move(failure));
    wake();
  }
  void hear_of_another_call(int from, std::uint64_t their_count,
                            const GroupOperation& theirs) override {
    fail_by_operation(from, their_count, theirs);
    wake();
  }
  void hear_of_another_size(int from, std::uint64_t number, std::size_t theirs,
                            std::size_t mine) override {
    fail_by_size(from, number, theirs, mine);
    wake();
  }
  void be_stopped(const std::string& text) override {
    stop({.code = StatusCode::ABORTED, .text = text, .culprits = {}});
  }

  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(rank()); }
  [[nodiscard]] static std::size_t index_of(const Peer& peer) {
    return static_cast<std::size_t>(peer.info.rank);
  }
  [[nodiscard]] DrawnNetwork::Call call() const {
    return {.count = operation_count(), .operation = operation()};
  }

  DrawnNetwork& network_;
  std::uint64_t num_seen_ = 0;  // events when the last progress() began to look
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_drawn_transports(DrawnNetwork& network) {
  std::vector<RankInfo> members(network.num_ranks());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    members[rank].rank = static_cast<int>(rank);
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    transports.push_back(std::make_unique<Transport>(
        std::make_unique<DrawnKind>(network, static_cast<int>(rank), members)));
  }
  return transports;
}

}  // namespace crossdevice::testing
