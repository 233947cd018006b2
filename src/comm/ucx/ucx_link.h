// SPDX-License-Identifier: Apache-2.0
/// What a member knows of a peer that UCX connects it to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "comm/ucx/ucx_frame.h"
#include "comm/ucx/ucx_library.h"

namespace crossdevice::detail {

class UcxKind;
struct UcxLink;

/// So many frames of messages may be on their way, or wait for a receive.
inline constexpr std::size_t kUcxWindow = 32;

/// A frame that UCX may still read.
struct UcxSlot {
  UcxLink* link = nullptr;
  std::byte* bytes = nullptr;
  bool is_busy = false;
};

/// Frames that came before anybody asked for them, in their order.
class UcxKeptFrames {
 public:
  void reserve() {
    if (!memory_)
      memory_ = std::make_unique_for_overwrite<std::byte[]>(kUcxWindow * kUcxFrameBytes);
  }
  [[nodiscard]] bool is_empty() const { return size_ == 0; }
  /// False: there is no place.
  [[nodiscard]] bool push_back(std::span<const std::byte> frame) {
    if (size_ == kUcxWindow || frame.size() > kUcxFrameBytes) return false;
    reserve();
    const std::size_t place = (first_ + size_++) % kUcxWindow;
    sizes_[place] = frame.size();
    std::memcpy(memory_.get() + place * kUcxFrameBytes, frame.data(), frame.size());
    return true;
  }
  [[nodiscard]] std::span<const std::byte> front() const {
    return {memory_.get() + first_ * kUcxFrameBytes, sizes_[first_]};
  }
  void pop_front() {
    first_ = (first_ + 1) % kUcxWindow;
    --size_;
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::array<std::size_t, kUcxWindow> sizes_{};
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

struct UcxLink {
  UcxKind* kind = nullptr;
  int rank = -1;
  ucp_ep_h endpoint = nullptr;
  bool has_heard_hello = false;
  bool has_said_goodbye = false;
  bool has_ended = false;
  // Sending.
  std::unique_ptr<std::byte[]> memory;  // of the slots
  std::array<UcxSlot, kUcxWindow> slots;
  UcxSlot small;  // for what fits a head, and is not waited for
  std::array<std::byte, kUcxHeadBytes> small_bytes{};
  std::string last_words;
  UcxSlot last;
  std::uint64_t num_sent = 0;   // frames of messages
  std::uint64_t num_taken = 0;  // of them, by the peer
  // Receiving.
  UcxKeptFrames kept;
  std::uint64_t num_received = 0;  // taken in by this member
  std::uint64_t num_told = 0;      // of them, as the peer knows

  /// What moving bytes needs; nothing is allocated later.
  void reserve() {
    kept.reserve();
    if (memory) return;
    memory = std::make_unique_for_overwrite<std::byte[]>(kUcxWindow * kUcxFrameBytes);
    for (std::size_t i = 0; i < kUcxWindow; ++i) {
      slots[i] = {.link = this, .bytes = memory.get() + i * kUcxFrameBytes};
    }
    small = {.link = this, .bytes = small_bytes.data()};
    last = {.link = this};
  }
};

}  // namespace crossdevice::detail
