// SPDX-License-Identifier: Apache-2.0
/// What the tested side of a control connection says, cut into frames: it must be well said, whatever it was told.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/detail/control_message.h"
#include "comm/detail/meeting_message.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::fuzz {

/// Throws WireError (which no target catches around it) where a payload is none of its kind.
inline void require_well_said(const detail::Frame& frame) {
  using detail::ControlKind;
  switch (frame.kind) {
    case ControlKind::CHALLENGE:
      return (void)detail::Challenge::decode(frame.payload);
    case ControlKind::HELLO:
      return (void)detail::Hello::decode(frame.payload);
    case ControlKind::WELCOME:
      return (void)detail::Welcome::decode(frame.payload);
    case ControlKind::REFUSED:
      return (void)detail::Refused::decode(frame.payload);
    case ControlKind::MEMBERS:
      return (void)detail::Members::decode(frame.payload);
    case ControlKind::EXCHANGE:
      return (void)detail::Exchange::decode(frame.payload);
    case ControlKind::EXCHANGED:
      return (void)detail::Exchanged::decode(frame.payload);
    case ControlKind::EXCHANGE_FAILED:
      return (void)detail::ExchangeFailed::decode(frame.payload);
    case ControlKind::WHO_IS_MISSING:
      return (void)detail::WhoIsMissing::decode(frame.payload);
    case ControlKind::MISSING:
      return (void)detail::Missing::decode(frame.payload);
    case ControlKind::GIVE_UP:
      return (void)detail::GiveUp::decode(frame.payload);
    case ControlKind::MEMBER_LOST:
      return (void)detail::MemberLost::decode(frame.payload);
    case ControlKind::ABORT:
      return (void)detail::Abort::decode(frame.payload);
    case ControlKind::HEARTBEAT:
      if (!frame.payload.empty()) (void)detail::Heartbeat::decode(frame.payload);
      return;
    case ControlKind::GOODBYE:
      FUZZ_EXPECT(frame.payload.empty());
      return;
    case ControlKind::SEEK:
      return (void)detail::Seek::decode(frame.payload);
    case ControlKind::FOUND:
      return (void)detail::Found::decode(frame.payload);
    case ControlKind::PREPARE:
    case ControlKind::ACCEPT:
      return (void)detail::BallotMessage::decode(frame.payload);
    case ControlKind::PROMISE:
      return (void)detail::PromiseMessage::decode(frame.payload);
    case ControlKind::PROPOSE:
      return (void)detail::VoteMessage::decode(frame.payload);
    case ControlKind::CHOSEN:
      return (void)detail::Chosen::decode(frame.payload);
    case ControlKind::ASK:
      // A chief is the only tested side that asks without being asked to.
      return (void)detail::Ask::decode(frame.payload);
    case ControlKind::CLOCK:
      return (void)detail::ClockReading::decode(frame.payload);
    case ControlKind::POST:
      return (void)detail::Post::decode(frame.payload);
    case ControlKind::WHAT_THEY_DO:
      return (void)detail::WhatTheyDo::decode(frame.payload);
    case ControlKind::DOING:
      return (void)detail::Doing::decode(frame.payload);
  }
  FUZZ_FAIL("a frame of a kind that there is");
}

class FramesHeard {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next one that is whole.
  [[nodiscard]] std::optional<detail::Frame> next() {
    if (bytes_.size() < detail::kFrameHeadBytes) return std::nullopt;
    const std::size_t size = detail::decode_frame_head(
        std::string_view(bytes_).substr(0, detail::kFrameHeadBytes), detail::kMaxFrameBytes);
    if (bytes_.size() < detail::kFrameHeadBytes + size) return std::nullopt;
    detail::Frame frame =
        detail::decode_frame_body(std::string_view(bytes_).substr(detail::kFrameHeadBytes, size));
    bytes_.erase(0, detail::kFrameHeadBytes + size);
    require_well_said(frame);
    return frame;
  }

 private:
  std::string bytes_;
};

}  // namespace crossdevice::fuzz
