// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_message.h"

#include <algorithm>
#include <cstring>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint32_t kMagic = 0x31646378;  // "xcd1"
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxCulprits = 16;

/// Least significant byte first, without an allocation.
class HeadWriter {
 public:
  explicit HeadWriter(std::byte* position) : position_(position) {}
  template <class T>
  HeadWriter& number(T value) {
    std::uint64_t rest = value;
    for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8U) {
      *position_++ = static_cast<std::byte>(rest & 0xFFU);
    }
    return *this;
  }
  HeadWriter& raw(const char* bytes, std::size_t size) {
    std::memcpy(position_, bytes, size);
    position_ += size;
    return *this;
  }
  [[nodiscard]] const std::byte* position() const { return position_; }

 private:
  std::byte* position_;
};

std::string_view cut(std::string_view text, std::size_t size) { return text.substr(0, size); }

}  // namespace

TcpHeadBytes encode_tcp_head(const TcpHead& head) {
  TcpHeadBytes bytes{};
  HeadWriter writer(bytes.data());
  writer.number(kMagic).number(static_cast<std::uint16_t>(head.kind)).number(std::uint16_t{0});
  writer.number(head.payload_size).number(std::uint32_t{0});
  writer.number(head.operation_count).number(head.number).number(head.size).number(head.offset);
  const GroupOperation& operation = head.operation;
  writer.raw(operation.kind.data(), operation.kind.size()).number(operation.fingerprint);
  writer.number(operation.num_values).number(operation.size_bytes);
  writer.number(operation.dtype).number(operation.reduce_op);
  return bytes;
}

TcpHead decode_tcp_head(std::span<const std::byte, kTcpHeadBytes> bytes) {
  WireReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (reader.number<std::uint32_t>() != kMagic)
    throw WireError("no frame of this library begins so");
  TcpHead head;
  const auto kind = reader.number<std::uint16_t>();
  if (reader.number<std::uint16_t>() != 0) throw WireError("a frame with what is not known here");
  head.payload_size = reader.number<std::uint32_t>();
  if (reader.number<std::uint32_t>() != 0) throw WireError("a frame with what is not known here");
  head.operation_count = reader.number<std::uint64_t>();
  head.number = reader.number<std::uint64_t>();
  head.size = reader.number<std::uint64_t>();
  head.offset = reader.number<std::uint64_t>();
  GroupOperation& operation = head.operation;
  std::memcpy(operation.kind.data(), reader.raw(operation.kind.size()).data(),
              operation.kind.size());
  operation.fingerprint = reader.number<std::uint64_t>();
  operation.num_values = reader.number<std::uint64_t>();
  operation.size_bytes = reader.number<std::uint64_t>();
  operation.dtype = reader.number<std::uint32_t>();
  operation.reduce_op = reader.number<std::uint32_t>();
  reader.require_end();
  switch (static_cast<TcpFrameKind>(kind)) {
    case TcpFrameKind::MESSAGE:
      if (head.payload_size > kMaxTcpPayloadBytes || head.offset > head.size ||
          head.payload_size > head.size - head.offset) {
        throw WireError("a frame with more than its message");
      }
      if (head.payload_size == 0 && head.size != 0) throw WireError("a frame with nothing");
      break;
    case TcpFrameKind::STOPPED:
      if (head.payload_size > kMaxStopBytes) throw WireError("a reason that is too long");
      break;
    case TcpFrameKind::GOODBYE:
      if (head.payload_size != 0) throw WireError("a goodbye that says more");
      break;
    default:
      throw WireError("a frame of a kind that is not known here");
  }
  head.kind = static_cast<TcpFrameKind>(kind);
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
