// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/meeting_message.h"

#include <algorithm>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

void put_ranks(WireWriter& out, const std::vector<int>& ranks) {
  out.list(ranks, [](WireWriter& list, int rank) { list.number(std::int32_t{rank}); });
}
std::vector<int> get_ranks(WireReader& in) {
  return in.list<int>([](WireReader& list) { return list.number<std::int32_t>(); });
}
/// Of what is counted up from what others say. No job comes so far, and from the last number that there is nobody could go on.
std::uint64_t get_count(WireReader& in) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62U;
  const auto count = in.number<std::uint64_t>();
  if (count > kMost) throw WireError("an epoch or a ballot that nobody comes to");
  return count;
}
/// Ranks that are a set: lists are compared, and searched by halves.
std::vector<int> get_members(WireReader& in) {
  std::vector<int> ranks = get_ranks(in);
  if (std::adjacent_find(ranks.begin(), ranks.end(), [](int a, int b) { return a >= b; }) !=
          ranks.end() ||
      (!ranks.empty() && ranks[0] < 0)) {
    throw WireError("members that do not ascend");
  }
  return ranks;
}

void put(WireWriter& out, const Epoch& epoch) {
  out.number(epoch.number);
  put_ranks(out, epoch.members);
}
Epoch get_epoch(WireReader& in) {
  Epoch epoch;
  epoch.number = get_count(in);
  epoch.members = get_members(in);
  return epoch;
}

void put(WireWriter& out, const Completed& completed) {
  out.number(completed.epoch).number(completed.sequence);
}
Completed get_completed(WireReader& in) {
  Completed completed;
  completed.epoch = in.number<std::uint64_t>();
  completed.sequence = in.number<std::uint64_t>();
  return completed;
}

void put(WireWriter& out, const Ballot& ballot) {
  out.number(ballot.round).number(std::int32_t{ballot.rank});
}
Ballot get_ballot(WireReader& in) {
  Ballot ballot;
  ballot.round = get_count(in);
  ballot.rank = in.number<std::int32_t>();
  return ballot;
}

void put(WireWriter& out, const Vote& vote) {
  put(out, vote.ballot);
  put_ranks(out, vote.members);
}
Vote get_vote(WireReader& in) {
  Vote vote;
  vote.ballot = get_ballot(in);
  vote.members = get_members(in);
  return vote;
}

template <class Message>
std::string encode_one(const Message& message) {
  WireWriter out;
  put(out, message);
  return out.take();
}

}  // namespace

Mac Seek::expected_mac(std::string_view secret, const Nonce& challenge) const {
  Seek unsigned_seek = *this;
  unsigned_seek.mac = {};
  return authenticate(secret, {"seeker", view_of(challenge), unsigned_seek.encode()});
}

std::string Seek::encode() const {
  WireWriter out;
  out.number(protocol).number(job).number(std::int32_t{rank});
  put(out, epoch);
  out.text(call);
  put(out, completed);
  put_ranks(out, lost);
  out.text(rouses);
  return out.raw(view_of(nonce)).raw(view_of(mac)).take();
}

Seek Seek::decode(std::string_view payload) {
  WireReader in(payload);
  Seek message;
  message.protocol = in.number<std::uint32_t>();
  message.job = in.number<std::uint64_t>();
  message.rank = in.number<std::int32_t>();
  message.epoch = get_epoch(in);
  message.call = in.text();
  message.completed = get_completed(in);
  message.lost = get_ranks(in);
  message.rouses = in.text();
  message.nonce = in.block<kNonceBytes>();
  message.mac = in.block<kMacBytes>();
  in.require_end();
  return message;
}

Mac Found::expected_mac(std::string_view secret, const Nonce& nonce) const {
  Found unsigned_found = *this;
  unsigned_found.mac = {};
  return authenticate(secret, {"found", view_of(nonce), unsigned_found.encode()});
}

std::string Found::encode() const {
  WireWriter out;
  out.number(std::int32_t{rank});
  put(out, epoch);
  return out.number(static_cast<std::uint8_t>(takes_in)).raw(view_of(mac)).take();
}

Found Found::decode(std::string_view payload) {
  WireReader in(payload);
  Found message;
  message.rank = in.number<std::int32_t>();
  message.epoch = get_epoch(in);
  message.takes_in = in.number<std::uint8_t>() != 0;
  message.mac = in.block<kMacBytes>();
  in.require_end();
  return message;
}

std::string BallotMessage::encode() const { return encode_one(ballot); }

BallotMessage BallotMessage::decode(std::string_view payload) {
  WireReader in(payload);
  BallotMessage message{get_ballot(in)};
  in.require_end();
  return message;
}

std::string PromiseMessage::encode() const {
  WireWriter out;
  put(out, promise.ballot);
  out.number(static_cast<std::uint8_t>(promise.vote.has_value()));
  put(out, promise.vote.value_or(Vote{}));
  return out.take();
}

PromiseMessage PromiseMessage::decode(std::string_view payload) {
  WireReader in(payload);
  PromiseMessage message;
  message.promise.ballot = get_ballot(in);
  const bool has_voted = in.number<std::uint8_t>() != 0;
  Vote vote = get_vote(in);
  if (has_voted) message.promise.vote = std::move(vote);
  in.require_end();
  return message;
}

std::string VoteMessage::encode() const { return encode_one(vote); }

VoteMessage VoteMessage::decode(std::string_view payload) {
  WireReader in(payload);
  VoteMessage message{get_vote(in)};
  in.require_end();
  return message;
}

std::string Chosen::encode() const {
  WireWriter out;
  put(out, epoch);
  out.number(port);
  put(out, completed);
  return out.take();
}

Chosen Chosen::decode(std::string_view payload) {
  WireReader in(payload);
  Chosen message;
  message.epoch = get_epoch(in);
  message.port = in.number<std::uint16_t>();
  message.completed = get_completed(in);
  in.require_end();
  return message;
}

}  // namespace crossdevice::detail
