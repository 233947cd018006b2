// SPDX-License-Identifier: Apache-2.0
/// What travels on a connection between two members: frames, each a head of fixed size and a payload. A message is one frame, or several where it is
/// large, so that "stopped" can come in between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/group_operation.h"

#include "comm/detail/transport_kind.h"

namespace crossdevice::detail {

enum class TcpFrameKind : std::uint16_t {
  MESSAGE = 1,  // bytes of a message, from `offset` on
  STOPPED,      // why; nothing follows
  GOODBYE,      // nothing follows
};

struct TcpHead {
  TcpFrameKind kind = TcpFrameKind::MESSAGE;
  std::uint32_t payload_size = 0;
  std::uint64_t operation_count = 0;
  std::uint64_t number = 0;  // of the message, in its direction and operation
  std::uint64_t size = 0;    // of the whole message
  std::uint64_t offset = 0;
  GroupOperation operation;
};

inline constexpr std::size_t kTcpHeadBytes = 104;
inline constexpr std::size_t kMaxTcpPayloadBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMaxStopBytes = std::size_t{8} << 10;
using TcpHeadBytes = std::array<std::byte, kTcpHeadBytes>;

[[nodiscard]] TcpHeadBytes encode_tcp_head(const TcpHead& head);
/// From anybody. Whatever it returns can be: payload_size is within what the kind may have, and within the message.
///
/// Errors   WireError.
[[nodiscard]] TcpHead decode_tcp_head(std::span<const std::byte, kTcpHeadBytes> bytes);

/// The payload of STOPPED; long texts are cut.
[[nodiscard]] std::string encode_stop(const TransportFailure& failure);
/// Errors   WireError.
[[nodiscard]] TransportFailure decode_stop(std::string_view bytes, int num_ranks);

}  // namespace crossdevice::detail
