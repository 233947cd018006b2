// SPDX-License-Identifier: Apache-2.0
/// What travels between two members over UCX: frames as over TCP, whose heads have one size (zeros behind), always say the operation, whose they are and
/// how many have been taken in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/detail/tcp_message.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {

enum class UcxFrameKind : std::uint32_t {
  TCP_KIND = 1,  // what the TCP head says
  HELLO,         // nothing follows
  TAKEN,         // says how many have been taken in, nothing else
};

struct UcxHead {
  UcxFrameKind kind = UcxFrameKind::TCP_KIND;
  std::uint32_t rank = 0;
  std::uint64_t session = 0;
  std::uint64_t num_taken =
      0;  // frames of messages that the sender of this has taken in from whom it sends this to
  TcpHead head;
};

inline constexpr std::size_t kUcxHeadBytes = kMaxTcpHeadBytes + 24;
/// With its head and what UCX adds it is one packet of 8 KiB, the least that UCX's transports take at once.
inline constexpr std::size_t kUcxPayloadBytes = 7936;
inline constexpr std::size_t kUcxFrameBytes = kUcxHeadBytes + kUcxPayloadBytes;

inline void encode_ucx_head(const UcxHead& head, std::byte* bytes) {
  const TcpHeadBytes inner = encode_tcp_head(head.head);
  std::memcpy(bytes, inner.bytes.data(), inner.bytes.size());
  bytes += inner.bytes.size();
  const auto put = [&bytes](std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i, value >>= 8U) {
      *bytes++ = static_cast<std::byte>(value & 0xFFU);
    }
  };
  put(static_cast<std::uint32_t>(head.kind), 4);
  put(head.rank, 4);
  put(head.session, 8);
  put(head.num_taken, 8);
}

/// Errors   WireError.
[[nodiscard]] inline UcxHead decode_ucx_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kUcxHeadBytes) throw WireError("a frame without a head");
  const std::span<const std::byte> rest = bytes.subspan(kMaxTcpHeadBytes, 24);
  WireReader reader({reinterpret_cast<const char*>(rest.data()), rest.size()});
  UcxHead head;
  const auto kind = reader.number<std::uint32_t>();
  head.rank = reader.number<std::uint32_t>();
  head.session = reader.number<std::uint64_t>();
  head.num_taken = reader.number<std::uint64_t>();
  const std::size_t inner = tcp_head_size(bytes.first<kMaxTcpHeadBytes>());
  head.head = decode_tcp_head(bytes.first(inner));
  const auto gap = bytes.subspan(inner, kMaxTcpHeadBytes - inner);
  if (std::any_of(gap.begin(), gap.end(), [](std::byte each) { return each != std::byte{0}; })) {
    throw WireError("a head with something behind it");
  }
  if (kind < 1 || kind > static_cast<std::uint32_t>(UcxFrameKind::TAKEN)) {
    throw WireError("a frame of a kind that is not known here");
  }
  head.kind = static_cast<UcxFrameKind>(kind);
  const std::size_t size = bytes.size() - kUcxHeadBytes;
  if (size != head.head.payload_size) throw WireError("a frame of another size than it says");
  if (head.kind != UcxFrameKind::TCP_KIND && size != 0) {
    throw WireError("a frame with more than it can have");
  }
  return head;
}

}  // namespace crossdevice::detail
