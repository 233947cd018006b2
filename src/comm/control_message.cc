// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/control_message.h"

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint32_t kMagic = 0x56454458;  // "XDEV"
constexpr std::size_t kMaxClockBytes = 256;
constexpr std::size_t kMaxHearsayBytes = 200;

WireWriter& put(WireWriter& out, const RoundId& id) {
  return out.number(id.group).number(id.sequence);
}
RoundId get_round_id(WireReader& in) {
  RoundId id;
  id.group = in.number<std::uint64_t>();
  id.sequence = in.number<std::uint64_t>();
  return id;
}

void put_rank_info(WireWriter& out, const RankInfo& info) {
  out.number(std::int32_t{info.rank}).number(std::int32_t{info.replica});
  out.text(info.host).number(info.pid).text(info.last_operation);
}
RankInfo get_rank_info(WireReader& in) {
  RankInfo info;
  info.rank = in.number<std::int32_t>();
  info.replica = in.number<std::int32_t>();
  info.host = in.text();
  info.pid = in.number<std::int64_t>();
  info.last_operation = in.text();
  return info;
}

void put_member(WireWriter& out, const MemberInfo& member) {
  out.number(std::int32_t{member.rank}).text(member.host).text(member.host_id).number(member.pid);
  out.list(member.addresses, [](WireWriter& list, const std::string& each) { list.text(each); });
}
MemberInfo get_member(WireReader& in) {
  MemberInfo member;
  member.rank = in.number<std::int32_t>();
  member.host = in.text();
  member.host_id = in.text();
  member.pid = in.number<std::int64_t>();
  member.addresses = in.list<std::string>([](WireReader& list) { return list.text(); });
  return member;
}

void put_rank(WireWriter& out, int rank) { out.number(std::int32_t{rank}); }
int get_rank(WireReader& in) { return in.number<std::int32_t>(); }

StatusCode get_status_code(WireReader& in) {
  const auto code = in.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(StatusCode::INTERNAL)) throw WireError("no status code");
  return static_cast<StatusCode>(code);
}

/// Decodes all of a payload.
template <class Read>
auto decode_all(std::string_view payload, Read read) {
  WireReader in(payload);
  auto message = read(in);
  in.require_end();
  return message;
}

}  // namespace

std::string encode_frame(ControlKind kind, std::string_view payload) {
  return WireWriter()
      .number(static_cast<std::uint32_t>(payload.size() + 1))
      .number(static_cast<std::uint8_t>(kind))
      .raw(payload)
      .take();
}

std::string_view control_greeting() {
  static const std::string frame = encode_frame(ControlKind::CHALLENGE, Challenge{}.encode());
  return std::string_view(frame).substr(0, kFrameHeadBytes + 1);
}

std::size_t decode_frame_head(std::string_view head, std::size_t max_bytes) {
  const std::size_t size = WireReader(head).number<std::uint32_t>();
  if (size == 0 || size > max_bytes) {
    throw WireError("a frame of " + std::to_string(size) + " bytes, where 1 to " +
                    std::to_string(max_bytes) + " are allowed");
  }
  return size;
}

Frame decode_frame_body(std::string_view body) {
  WireReader in(body);
  const auto kind = in.number<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(ControlKind::CHALLENGE) ||
      kind > static_cast<std::uint8_t>(kLastControlKind)) {
    throw WireError("a frame of unknown kind " + std::to_string(kind));
  }
  return {static_cast<ControlKind>(kind), std::string(body.substr(1))};
}

std::uint32_t protocol_of(std::string_view payload) {
  return WireReader(payload).number<std::uint32_t>();
}

std::string Challenge::encode() const {
  return WireWriter().number(kMagic).number(protocol).raw(view_of(nonce)).take();
}

Challenge Challenge::decode(std::string_view payload) {
  WireReader in(payload);
  if (in.number<std::uint32_t>() != kMagic) throw WireError("no crossdevice chief");
  Challenge message;
  message.protocol = in.number<std::uint32_t>();
  if (message.protocol != kControlProtocol) return message;
  message.nonce = in.block<kNonceBytes>();
  in.require_end();
  return message;
}

Mac Hello::expected_mac(std::string_view secret, const Nonce& challenge) const {
  Hello unsigned_hello = *this;
  unsigned_hello.mac = {};
  return authenticate(secret, {"worker", view_of(challenge), unsigned_hello.encode()});
}

std::string Hello::encode() const {
  WireWriter out;
  out.number(protocol).text(library_version).number(std::int32_t{num_workers});
  out.number(job).number(epoch);
  put_member(out, member);
  return out.raw(view_of(nonce)).raw(view_of(mac)).take();
}

Hello Hello::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Hello message;
    message.protocol = in.number<std::uint32_t>();
    message.library_version = in.text();
    message.num_workers = in.number<std::int32_t>();
    message.job = in.number<std::uint64_t>();
    message.epoch = in.number<std::uint64_t>();
    message.member = get_member(in);
    message.nonce = in.block<kNonceBytes>();
    message.mac = in.block<kMacBytes>();
    return message;
  });
}

Mac Welcome::expected_mac(std::string_view secret, const Nonce& nonce) const {
  return authenticate(secret, {"chief", view_of(nonce), WireWriter().number(cluster_id).take()});
}

std::string Welcome::encode() const {
  return WireWriter().number(cluster_id).raw(view_of(mac)).take();
}

Welcome Welcome::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Welcome message;
    message.cluster_id = in.number<std::uint64_t>();
    message.mac = in.block<kMacBytes>();
    return message;
  });
}

Mac Refused::expected_mac(std::string_view secret, const Nonce& nonce) const {
  Refused unsigned_refused = *this;
  unsigned_refused.mac = {};
  return authenticate(secret, {"refused", view_of(nonce), unsigned_refused.encode()});
}

std::string Refused::as_hearsay() const {
  std::string quoted = text.substr(0, kMaxHearsayBytes);
  for (char& each : quoted) {
    if (each < ' ' || each > '~') each = '?';
  }
  return "it refuses without a proof that it holds the secret of this job, and says: " + quoted;
}

std::string Refused::encode() const {
  return WireWriter()
      .number(static_cast<std::uint8_t>(code))
      .text(text)
      .list(culprits, put_rank_info)
      .raw(view_of(mac))
      .take();
}

Refused Refused::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Refused message;
    message.code = get_status_code(in);
    message.text = in.text();
    message.culprits = in.list<RankInfo>(get_rank_info);
    message.mac = in.block<kMacBytes>();
    return message;
  });
}

std::string Members::encode() const { return WireWriter().list(members, put_member).take(); }

Members Members::decode(std::string_view payload) {
  return decode_all(payload,
                    [](WireReader& in) { return Members{in.list<MemberInfo>(get_member)}; });
}

std::string Exchange::encode() const {
  WireWriter out;
  put(out, id).list(members, put_rank);
  return out.text(kind).text(bytes).take();
}

Exchange Exchange::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Exchange message;
    message.id = get_round_id(in);
    message.members = in.list<int>(get_rank);
    message.kind = in.text();
    message.bytes = in.text();
    return message;
  });
}

std::string Exchanged::encode() const {
  WireWriter out;
  put(out, id).list(parts, [](WireWriter& list, const std::string& part) { list.text(part); });
  return out.take();
}

Exchanged Exchanged::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Exchanged message;
    message.id = get_round_id(in);
    message.parts = in.list<std::string>([](WireReader& list) { return list.text(); });
    return message;
  });
}

std::string ExchangeFailed::encode() const {
  WireWriter out;
  put(out, id).number(static_cast<std::uint8_t>(code)).text(text).list(culprits, put_rank_info);
  return out.take();
}

ExchangeFailed ExchangeFailed::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    ExchangeFailed message;
    message.id = get_round_id(in);
    message.code = get_status_code(in);
    message.text = in.text();
    message.culprits = in.list<RankInfo>(get_rank_info);
    return message;
  });
}

std::string WhoIsMissing::encode() const {
  WireWriter out;
  return put(out, id).take();
}

WhoIsMissing WhoIsMissing::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) { return WhoIsMissing{get_round_id(in)}; });
}

std::string Missing::encode() const {
  WireWriter out;
  return put(out, id).list(ranks, put_rank_info).take();
}

Missing Missing::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Missing message;
    message.id = get_round_id(in);
    message.ranks = in.list<RankInfo>(get_rank_info);
    return message;
  });
}

std::string GiveUp::encode() const {
  WireWriter out;
  return put(out, id).text(text).take();
}

GiveUp GiveUp::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    GiveUp message;
    message.id = get_round_id(in);
    message.text = in.text();
    return message;
  });
}

std::string Post::encode() const {
  return WireWriter()
      .number(group)
      .number(std::int32_t{from})
      .list(to, put_rank)
      .text(bytes)
      .take();
}

Post Post::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Post message;
    message.group = in.number<std::uint64_t>();
    message.from = in.number<std::int32_t>();
    message.to = in.list<int>(get_rank);
    message.bytes = in.text();
    if (message.bytes.size() > kMaxBytes) throw WireError("a post is longer than one may be");
    return message;
  });
}

std::string MemberLost::encode() const {
  return WireWriter().number(std::int32_t{rank}).text(text).take();
}

MemberLost MemberLost::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    MemberLost message;
    message.rank = in.number<std::int32_t>();
    message.text = in.text();
    return message;
  });
}

std::string Abort::encode() const {
  return WireWriter().number(std::int32_t{origin}).text(text).take();
}

Abort Abort::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Abort message;
    message.origin = in.number<std::int32_t>();
    message.text = in.text();
    return message;
  });
}

std::string Ask::encode() const { return WireWriter().number(nonce).take(); }

Ask Ask::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) { return Ask{in.number<std::uint64_t>()}; });
}

std::string Heartbeat::encode() const {
  return WireWriter().text(operation).number(answers).take();
}

Heartbeat Heartbeat::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Heartbeat message;
    message.operation = in.text();
    message.answers = in.number<std::uint64_t>();
    return message;
  });
}

std::string WhatTheyDo::encode() const {
  return WireWriter().number(number).list(ranks, put_rank).take();
}

WhatTheyDo WhatTheyDo::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    WhatTheyDo message;
    message.number = in.number<std::uint64_t>();
    message.ranks = in.list<int>(get_rank);
    return message;
  });
}

std::string Doing::encode() const {
  return WireWriter()
      .number(number)
      .number(std::int32_t{rank})
      .text(operation)
      .number(static_cast<std::uint8_t>(is_final))
      .take();
}

Doing Doing::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    Doing message;
    message.number = in.number<std::uint64_t>();
    message.rank = in.number<std::int32_t>();
    message.operation = in.text();
    const auto said = in.number<std::uint8_t>();
    if (said > 1) throw WireError("neither yes nor no");
    message.is_final = said == 1;
    return message;
  });
}

std::string ClockReading::encode() const {
  return WireWriter().number(asked_ns).number(answered_ns).text(clock).take();
}

ClockReading ClockReading::decode(std::string_view payload) {
  return decode_all(payload, [](WireReader& in) {
    ClockReading message;
    message.asked_ns = in.number<std::int64_t>();
    message.answered_ns = in.number<std::int64_t>();
    message.clock = in.text();
    if (message.clock.size() > kMaxClockBytes) throw WireError("no clock has such a name");
    return message;
  });
}

}  // namespace crossdevice::detail
