// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_message.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxCulprits = 16;

// A head: kMagic, its size, its kind with what else it says; then numbers of 7 bits a byte, least significant first, all but the last byte with kMore: the
// payload's size, the count of operations, the message's number; if IS_PART the message's size and the offset; if SAYS_OPERATION the operation, as it
// lies in GroupOperation. A message that does not say its operation says with its kind at which place of SaidOperations it is.
constexpr std::uint8_t kMagic = 0xCD;
constexpr std::size_t kSizePlace = 1;
constexpr std::size_t kMinHeadBytes = 6;
constexpr std::uint8_t kKindBits = 0x0F;
constexpr std::uint8_t kIsPart = 0x10;  // of a message that is more than this frame
constexpr std::uint8_t kSaysOperation = 0x20;
constexpr unsigned kPlaceShift = 6;
static_assert(SaidOperations::kPlaces == std::size_t{1} << (8 - kPlaceShift));
constexpr std::uint8_t kMore = 0x80;
constexpr std::uint64_t kValueBits = 0x7F;
constexpr unsigned kBitsPerByte = 7;

/// Without an allocation.
class HeadWriter {
 public:
  explicit HeadWriter(TcpHeadBytes& head) : head_(head) {}
  HeadWriter& byte(std::uint64_t value) {
    head_.bytes[head_.size++] = static_cast<std::byte>(value);
    return *this;
  }
  /// Least significant byte first.
  template <class T>
  HeadWriter& number(T value) {
    std::uint64_t rest = value;
    for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8U) byte(rest & 0xFFU);
    return *this;
  }
  HeadWriter& short_number(std::uint64_t value) {
    for (; value > kValueBits; value >>= kBitsPerByte) byte((value & kValueBits) | kMore);
    return byte(value);
  }
  HeadWriter& operation(const GroupOperation& operation) {
    std::memcpy(head_.bytes.data() + head_.size, operation.kind.data(), operation.kind.size());
    head_.size += operation.kind.size();
    number(operation.fingerprint).number(operation.num_values).number(operation.size_bytes);
    return number(operation.dtype).number(operation.reduce_op);
  }

 private:
  TcpHeadBytes& head_;
};

/// As HeadWriter::short_number() writes it.
std::uint64_t short_number(WireReader& reader) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += kBitsPerByte) {
    const auto byte = reader.number<std::uint8_t>();
    const std::uint64_t bits = byte & kValueBits;
    if (shift > 63 || (bits << shift) >> shift != bits) {
      throw WireError("a number that is too large");
    }
    value |= bits << shift;
    if ((byte & kMore) != 0) continue;
    if (byte == 0 && shift != 0) throw WireError("a number that is longer than it needs to be");
    return value;
  }
}

GroupOperation operation_of(WireReader& reader) {
  GroupOperation operation;
  std::memcpy(operation.kind.data(), reader.raw(operation.kind.size()).data(),
              operation.kind.size());
  operation.fingerprint = reader.number<std::uint64_t>();
  operation.num_values = reader.number<std::uint64_t>();
  operation.size_bytes = reader.number<std::uint64_t>();
  operation.dtype = reader.number<std::uint32_t>();
  operation.reduce_op = reader.number<std::uint32_t>();
  return operation;
}

void require_possible(const TcpHead& head, bool is_part) {
  switch (head.kind) {
    case TcpFrameKind::MESSAGE:
      if (head.payload_size > kMaxTcpPayloadBytes || head.offset > head.size ||
          head.payload_size > head.size - head.offset) {
        throw WireError("a frame with more than its message");
      }
      if (head.payload_size == 0 && head.size != 0) throw WireError("a frame with nothing");
      if (is_part && head.payload_size == head.size) throw WireError("a part that is all of it");
      return;
    case TcpFrameKind::STOPPED:
      if (head.payload_size > kMaxStopBytes) throw WireError("a reason that is too long");
      return;
    case TcpFrameKind::GOODBYE:
      if (head.payload_size != 0) throw WireError("a goodbye that says more");
      return;
  }
  throw WireError("a frame of a kind that is not known here");
}

std::string_view cut(std::string_view text, std::size_t size) { return text.substr(0, size); }

}  // namespace

TcpHeadBytes encode_tcp_head(const TcpHead& head, const SaidOperations& said) {
  const bool is_message = head.kind == TcpFrameKind::MESSAGE;
  const bool is_part = is_message && head.size != head.payload_size;
  const std::optional<std::size_t> place = is_message ? said.find(head.operation) : std::nullopt;
  const bool says_operation = is_message && !place.has_value();
  TcpHeadBytes bytes;
  HeadWriter writer(bytes);
  writer.byte(kMagic).byte(0);
  writer.byte(static_cast<std::uint8_t>(head.kind) | (is_part ? kIsPart : 0U) |
              (says_operation ? kSaysOperation : 0U) | (place.value_or(0) << kPlaceShift));
  writer.short_number(head.payload_size).short_number(head.operation_count);
  writer.short_number(head.number);
  if (is_part) writer.short_number(head.size).short_number(head.offset);
  if (says_operation) writer.operation(head.operation);
  bytes.bytes[kSizePlace] = static_cast<std::byte>(bytes.size);
  return bytes;
}

std::string encode_last_frame(TcpFrameKind kind, std::string_view payload) {
  TcpHead head;
  head.kind = kind;
  head.payload_size = static_cast<std::uint32_t>(payload.size());
  const TcpHeadBytes bytes = encode_tcp_head(head);
  return std::string(reinterpret_cast<const char*>(bytes.view().data()), bytes.size)
      .append(payload);
}

std::size_t tcp_head_size(std::span<const std::byte> bytes) {
  if (!bytes.empty() && bytes[0] != std::byte{kMagic}) {
    throw WireError("no frame of this library begins so");
  }
  if (bytes.size() <= kSizePlace) return 0;
  const auto size = std::to_integer<std::size_t>(bytes[kSizePlace]);
  if (size < kMinHeadBytes || size > kMaxTcpHeadBytes) throw WireError("a head of no such size");
  return size;
}

TcpFrameKind tcp_kind(std::span<const std::byte> bytes) {
  static_assert(kTcpKindBytes == kSizePlace + 2 && kTcpKindBytes < kMinHeadBytes);
  return static_cast<TcpFrameKind>(std::to_integer<std::uint8_t>(bytes[kSizePlace + 1]) &
                                   kKindBits);
}

TcpHead decode_tcp_head(std::span<const std::byte> bytes, const SaidOperations& said) {
  if (tcp_head_size(bytes) != bytes.size()) throw WireError("a head of another size than it says");
  WireReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  (void)reader.raw(kSizePlace + 1);
  const auto kind = reader.number<std::uint8_t>();
  const bool is_part = (kind & kIsPart) != 0;
  const bool says_operation = (kind & kSaysOperation) != 0;
  const std::size_t place = kind >> kPlaceShift;
  TcpHead head;
  head.kind = static_cast<TcpFrameKind>(kind & kKindBits);
  const std::uint64_t payload_size = short_number(reader);
  if (payload_size > kMaxTcpPayloadBytes) throw WireError("a frame that is too long");
  head.payload_size = static_cast<std::uint32_t>(payload_size);
  head.operation_count = short_number(reader);
  head.number = short_number(reader);
  head.size = is_part ? short_number(reader) : payload_size;
  if (is_part) head.offset = short_number(reader);
  if (head.kind == TcpFrameKind::MESSAGE) {
    const GroupOperation* const known = says_operation ? nullptr : said.at(place);
    if (!says_operation && known == nullptr) throw WireError("a message of what was not said");
    head.operation = says_operation ? operation_of(reader) : *known;
    if (says_operation && said.find(head.operation).has_value()) {
      throw WireError("an operation that has been said");
    }
  }
  reader.require_end();
  if ((says_operation && place != 0) ||
      (head.kind != TcpFrameKind::MESSAGE && (is_part || says_operation || place != 0))) {
    throw WireError("a frame with what is not known here");
  }
  require_possible(head, is_part);
  return head;
}

std::string encode_stop(const TransportFailure& failure) {
  WireWriter writer;
  writer.number(static_cast<std::uint8_t>(failure.code)).number(std::int32_t{failure.origin});
  writer.text(cut(failure.text, kMaxTextBytes));
  const std::size_t count = std::min(failure.culprits.size(), kMaxCulprits);
  writer.number(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const RankInfo& each = failure.culprits[i];
    writer.number(std::int32_t{each.rank}).number(std::int32_t{each.replica});
    writer.text(cut(each.host, kMaxNameBytes)).number(each.pid);
    writer.text(cut(each.last_operation, kMaxNameBytes));
  }
  return writer.take();
}

TransportFailure decode_stop(std::string_view bytes, int num_ranks) {
  WireReader reader(bytes);
  TransportFailure failure;
  const auto code = reader.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(StatusCode::INTERNAL)) throw WireError("no such error");
  failure.code = static_cast<StatusCode>(code);
  failure.origin = reader.number<std::int32_t>();
  if (failure.origin < -1 || failure.origin >= num_ranks) throw WireError("no such rank");
  failure.text = reader.text();
  failure.culprits = reader.list<RankInfo>([](WireReader& item) {
    RankInfo info;
    info.rank = item.number<std::int32_t>();
    info.replica = item.number<std::int32_t>();
    info.host = item.text();
    info.pid = item.number<std::int64_t>();
    info.last_operation = item.text();
    return info;
  });
  reader.require_end();
  return failure;
}

}  // namespace crossdevice::detail
