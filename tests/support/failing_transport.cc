// SPDX-License-Identifier: Apache-2.0
/// What all transports have in common is the library's; the rest is passed on to a transport of the library's.
#include "support/failing_transport.h"

#include <algorithm>
#include <list>
#include <span>
#include <thread>
#include <utility>

#include "crossdevice/comm/in_process_transport.h"

#include "comm/detail/transport_kind.h"

namespace crossdevice::testing {
namespace {

using detail::state_of;
using detail::TransferState;
using detail::TransportFailure;
using detail::TransportKind;

class FailingKind final : public TransportKind {
 public:
  FailingKind(std::unique_ptr<Transport> inner, const std::vector<RankInfo>& members,
              PlannedFailure& plan)
      : TransportKind(inner->rank(), members, false), inner_(std::move(inner)), plan_(plan) {}

  void close() override {
    forget_all();
    inner_.reset();
  }

 protected:
  void open(std::span<const int> peers, const Deadline& deadline) override {
    inner_->connect(peers, deadline);
  }
  void start_send(Peer& peer, Transfer& transfer) override {
    peer.sends.push_back(transfer);
    if (fails_now()) {
      record_failure(
          {.code = StatusCode::INTERNAL, .text = plan_.text, .culprits = {info_of(rank())}});
      return;
    }
    const TransferState& state = state_of(transfer);
    pass_on(transfer, [&](Transfer& passed) {
      inner_->send(state.peer, {state.out, state.size}, passed);
    });
  }
  void start_receive(Peer& peer, Transfer& transfer) override {
    peer.receives.push_back(transfer);
    const TransferState& state = state_of(transfer);
    pass_on(transfer, [&](Transfer& passed) {
      inner_->receive(state.peer, {state.in, state.size}, passed);
    });
  }
  bool progress() override {
    bool has_moved = false;
    hear_what([&] {
      has_moved = inner_->poll();
      while (const Transfer* const passed = inner_->take_completed()) take(*passed);
    });
    return has_moved;
  }
  void look_everywhere() override {
    hear_what([&] { inner_->look(); });
  }
  /// The other one has no way to wait for either a message or wake(); so this one looks again and again.
  void sleep(Clock::time_point /*until*/) override { std::this_thread::yield(); }
  void wake() noexcept override {}
  void tell(const TransportFailure& failure) noexcept override {
    inner_->stop(failure.code, failure.text, failure.culprits);
  }
  /// It lets go of all that it has when it is stopped.
  void let_go() noexcept override { passed_on_.clear(); }

 private:
  struct Passed {
    Transfer transfer;
    Transfer* of = nullptr;
  };

  [[nodiscard]] bool fails_now() {
    std::size_t& left = plan_.num_sends_left;
    if (left == 0) return true;
    if (left != PlannedFailure::kNever) --left;
    return false;
  }
  /// Makes `call`; what it throws is this one's failure, too.
  template <class Call>
  void hear_what(Call call) {
    try {
      call();
    } catch (const OpError& error) {
      record_failure({.code = error.code(),
                      .text = error.what(),
                      .culprits = {error.culprits().begin(), error.culprits().end()}});
    }
  }
  /// Into the operation that this one is in.
  template <class Give>
  void pass_on(Transfer& transfer, Give give) {
    hear_what([&] {
      for (; num_begun_ != operation_count(); ++num_begun_) begin_as_here();
      passed_on_.emplace_back();
      passed_on_.back().of = &transfer;
      give(passed_on_.back().transfer);
    });
  }
  void begin_as_here() {
    const GroupOperation& here = operation();
    inner_->begin({.kind = here.kind.data(),
                   .reduce_op = static_cast<ReduceOp>(here.reduce_op),
                   .dtype = static_cast<DType>(here.dtype),
                   .num_values = here.num_values,
                   .size_bytes = here.size_bytes,
                   .fingerprint = here.fingerprint,
                   .sequence = here.sequence});
  }
  void take(const Transfer& passed) {
    const auto at = std::find_if(passed_on_.begin(), passed_on_.end(),
                                 [&](const Passed& each) { return &each.transfer == &passed; });
    Transfer& transfer = *at->of;
    passed_on_.erase(at);
    const TransferState& state = state_of(transfer);
    (state.is_send ? peer(state.peer).sends : peer(state.peer).receives).remove(transfer);
    complete(transfer);
  }

  std::unique_ptr<Transport> inner_;
  PlannedFailure& plan_;
  std::uint64_t num_begun_ = 0;  // operations, of the inner one
  std::list<Passed> passed_on_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_failing_transports(int num_ranks, int failing,
                                                                PlannedFailure& plan) {
  std::vector<std::unique_ptr<Transport>> transports = make_in_process_transports(num_ranks);
  std::vector<RankInfo> members(transports.size());
  for (int rank = 0; rank < num_ranks; ++rank) members[static_cast<std::size_t>(rank)].rank = rank;
  std::unique_ptr<Transport>& one = transports[static_cast<std::size_t>(failing)];
  one = std::make_unique<Transport>(std::make_unique<FailingKind>(std::move(one), members, plan));
  return transports;
}

}  // namespace crossdevice::testing
