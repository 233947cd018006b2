// SPDX-License-Identifier: Apache-2.0
/// Transfers one behind the other, linked through themselves.
#pragma once

#include <utility>

#include "crossdevice/comm/transport.h"

namespace crossdevice::detail {

struct TransferAccess {
  [[nodiscard]] static TransferState& state(Transfer& transfer) { return transfer.state_; }
};

[[nodiscard]] inline TransferState& state_of(Transfer& transfer) {
  return TransferAccess::state(transfer);
}

/// A transfer is in one queue at a time.
class TransferQueue {
 public:
  [[nodiscard]] bool is_empty() const { return first_ == nullptr; }
  [[nodiscard]] Transfer* first() const { return first_; }

  void push_back(Transfer& transfer) {
    TransferState& state = state_of(transfer);
    state.next = nullptr;
    state.previous = last_;
    (last_ != nullptr ? state_of(*last_).next : first_) = &transfer;
    last_ = &transfer;
  }
  void remove(Transfer& transfer) {
    TransferState& state = state_of(transfer);
    (state.previous != nullptr ? state_of(*state.previous).next : first_) = state.next;
    (state.next != nullptr ? state_of(*state.next).previous : last_) = state.previous;
    state.next = state.previous = nullptr;
  }
  Transfer& pop_front() {
    Transfer& transfer = *first_;
    remove(transfer);
    return transfer;
  }
  /// Forgets them without touching them: they may be gone.
  void forget() { first_ = last_ = nullptr; }

 private:
  Transfer* first_ = nullptr;
  Transfer* last_ = nullptr;
};

}  // namespace crossdevice::detail
