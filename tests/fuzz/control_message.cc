// SPDX-License-Identifier: Apache-2.0
// Every message of the control plane, by the kind that its frame says: it is refused, or means what its bytes say, and says them again.
#include "comm/detail/control_message.h"

#include <string>
#include <string_view>

#include "comm/detail/meeting_message.h"
#include "comm/detail/wire.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice::detail {
namespace {

template <class Message>
void check(std::string_view payload) {
  const std::string said = Message::decode(payload).encode();
  FUZZ_EXPECT(said.size() == payload.size());
  FUZZ_EXPECT(Message::decode(said).encode() == said);
  // A truth value may come as any byte that is not 0.
  constexpr bool has_truth_value =
      std::is_same_v<Message, Found> || std::is_same_v<Message, PromiseMessage>;
  FUZZ_EXPECT(has_truth_value || said == payload);
}

void check(const Frame& frame) {
  const std::string_view payload = frame.payload;
  switch (frame.kind) {
    case ControlKind::CHALLENGE:
      if (Challenge::decode(payload).protocol == kControlProtocol) check<Challenge>(payload);
      return;
    case ControlKind::HELLO:
      return check<Hello>(payload);
    case ControlKind::WELCOME:
      return check<Welcome>(payload);
    case ControlKind::REFUSED:
      return check<Refused>(payload);
    case ControlKind::MEMBERS:
      return check<Members>(payload);
    case ControlKind::EXCHANGE:
      return check<Exchange>(payload);
    case ControlKind::EXCHANGED:
      return check<Exchanged>(payload);
    case ControlKind::EXCHANGE_FAILED:
      return check<ExchangeFailed>(payload);
    case ControlKind::WHO_IS_MISSING:
      return check<WhoIsMissing>(payload);
    case ControlKind::MISSING:
      return check<Missing>(payload);
    case ControlKind::GIVE_UP:
      return check<GiveUp>(payload);
    case ControlKind::MEMBER_LOST:
      return check<MemberLost>(payload);
    case ControlKind::ABORT:
      return check<Abort>(payload);
    case ControlKind::HEARTBEAT:
      return check<Heartbeat>(payload);
    case ControlKind::GOODBYE:
      return;
    case ControlKind::SEEK:
      return check<Seek>(payload);
    case ControlKind::FOUND:
      return check<Found>(payload);
    case ControlKind::PREPARE:
    case ControlKind::ACCEPT:
      return check<BallotMessage>(payload);
    case ControlKind::PROMISE:
      if (PromiseMessage::decode(payload).promise.vote.has_value()) check<PromiseMessage>(payload);
      return;
    case ControlKind::PROPOSE:
      return check<VoteMessage>(payload);
    case ControlKind::CHOSEN:
      return check<Chosen>(payload);
    case ControlKind::ASK:
      // Whoever asks: a member asks with the round, the chief with a number.
      if (payload.size() == Ask{}.encode().size()) return check<Ask>(payload);
      return check<WhoIsMissing>(payload);
    case ControlKind::CLOCK:
      return check<ClockReading>(payload);
    case ControlKind::POST:
      return check<Post>(payload);
    case ControlKind::WHAT_THEY_DO:
      return check<WhatTheyDo>(payload);
    case ControlKind::DOING:
      return check<Doing>(payload);
  }
  FUZZ_FAIL("a frame of a kind that there is");
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice::detail;
  const std::string body = crossdevice::fuzz::text_of(data, size);
  try {
    const std::size_t announced = decode_frame_head(body, kMaxStrangerFrameBytes);
    FUZZ_EXPECT(announced >= 1 && announced <= kMaxStrangerFrameBytes);
  } catch (const WireError&) {
  }
  try {
    const Frame frame = decode_frame_body(body);
    FUZZ_EXPECT(encode_frame(frame.kind, frame.payload).substr(kFrameHeadBytes) == body);
    check(frame);
  } catch (const WireError&) {
  }
  return 0;
}
