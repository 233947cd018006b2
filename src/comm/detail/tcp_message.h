// SPDX-License-Identifier: Apache-2.0
/// What travels on a connection between two members: frames, each a head and a payload. A message is one frame, or several where it is large, so that
/// "stopped" can come in between. A head has its own size in it, since most need few bytes: small numbers are short, and what was said a short time
/// before, or follows from the rest, is not said.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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

inline constexpr std::size_t kMaxTcpPayloadBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMaxStopBytes = std::size_t{8} << 10;
/// Some ten are usual.
inline constexpr std::size_t kMaxTcpHeadBytes = 104;

struct TcpHeadBytes {
  std::array<std::byte, kMaxTcpHeadBytes> bytes{};
  std::size_t size = 0;
  [[nodiscard]] std::span<const std::byte> view() const { return {bytes.data(), size}; }
};

/// The different operations that were said last on a connection in one direction. A program does the same few in turn (its gradients, a metric, a barrier),
/// and none of them is said again. Both ends remember the operation of each message, in the same order, so that both hold the same in the same places.
class SaidOperations {
 public:
  static constexpr std::size_t kPlaces = 4;

  [[nodiscard]] std::optional<std::size_t> find(const GroupOperation& operation) const {
    if (num_said_ != 0 && said_[last_] == operation) return last_;
    const std::size_t count = std::min(num_said_, kPlaces);
    for (std::size_t place = 0; place < count; ++place) {
      if (said_[place] == operation) return place;
    }
    return std::nullopt;
  }
  /// Null: nothing was said there.
  [[nodiscard]] const GroupOperation* at(std::size_t place) const {
    return place < std::min(num_said_, kPlaces) ? &said_[place] : nullptr;
  }
  /// Where it is not there, it takes the place of the one that was new longest ago.
  void remember(const GroupOperation& operation) {
    if (const std::optional<std::size_t> place = find(operation)) {
      last_ = *place;
      return;
    }
    last_ = num_said_++ % kPlaces;
    said_[last_] = operation;
  }

 private:
  std::array<GroupOperation, kPlaces> said_{};
  std::size_t num_said_ = 0;  // that were new
  std::size_t last_ = 0;      // most messages are of the operation of the one before
};

/// `said`: before, on this connection in this direction. Frames of other kinds than MESSAGE have no operation.
[[nodiscard]] TcpHeadBytes encode_tcp_head(const TcpHead& head, const SaidOperations& said = {});
/// A whole frame of another kind than MESSAGE.
[[nodiscard]] std::string encode_last_frame(TcpFrameKind kind, std::string_view payload = {});
/// Of the head that begins there; 0: more bytes are needed to know it.
///
/// Errors   WireError: no head begins so.
[[nodiscard]] std::size_t tcp_head_size(std::span<const std::byte> bytes);
/// With so many of a head's bytes its kind is known. Every frame has more.
inline constexpr std::size_t kTcpKindBytes = 3;
/// Of a head of which at least so many bytes are there; it need not be a kind that there is.
[[nodiscard]] TcpFrameKind tcp_kind(std::span<const std::byte> bytes);
/// Of exactly the bytes of a head, from anybody, with `said` as for encode_tcp_head(). Whatever it returns can be: payload_size is within what the kind
/// may have, and within the message. There is one way only to write it.
///
/// Errors   WireError.
[[nodiscard]] TcpHead decode_tcp_head(std::span<const std::byte> bytes,
                                      const SaidOperations& said = {});

/// The payload of STOPPED; long texts are cut.
[[nodiscard]] std::string encode_stop(const TransportFailure& failure);
/// Errors   WireError.
[[nodiscard]] TransportFailure decode_stop(std::string_view bytes, int num_ranks);

}  // namespace crossdevice::detail
