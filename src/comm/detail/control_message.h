// SPDX-License-Identifier: Apache-2.0
/// The words of the control plane: what a worker and its chief say to each other.
///
/// A frame is a length (4 bytes), a kind (1 byte) and a payload. The first three of a connection are CHALLENGE (chief), HELLO (worker) and
/// WELCOME or REFUSED (chief); both sides prove that they hold the secret before anything else is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/error.h"

#include "comm/detail/authentication.h"

namespace crossdevice::detail {

inline constexpr std::uint32_t kControlProtocol = 7;
/// Of a frame, kind included, before and after the sender has proved who it is.
inline constexpr std::size_t kMaxStrangerFrameBytes = 4096;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;
inline constexpr std::size_t kFrameHeadBytes = 4;
/// What whoever listens says first, as far as it is always the same.
[[nodiscard]] std::string_view control_greeting();
/// How the text of an abort begins that nobody has asked for: another cluster has taken this one's place.
inline constexpr const char* kRebuilt = "this cluster was rebuilt: ";
inline constexpr const char* kLeftOut = "this worker was left out: ";
/// Why a member is missing that has said goodbye.
inline constexpr const char* kHasLeft = "it has left";

enum class ControlKind : std::uint8_t {
  CHALLENGE = 1,
  HELLO,
  WELCOME,
  REFUSED,
  MEMBERS,
  EXCHANGE,
  EXCHANGED,
  EXCHANGE_FAILED,
  WHO_IS_MISSING,
  MISSING,
  GIVE_UP,
  MEMBER_LOST,
  ABORT,
  HEARTBEAT,
  GOODBYE,
  // Those of meeting_message.h.
  SEEK,
  FOUND,
  PREPARE,
  PROMISE,
  PROPOSE,
  ACCEPT,
  CHOSEN,
  /// What somebody does now. A member asks it of those that a round misses (with the round, as in WHO_IS_MISSING), and the chief asks them (with an Ask);
  /// they answer with a HEARTBEAT at once.
  ASK,
  /// What the chief's clock says: a worker that writes a trace asks, the chief answers at once.
  CLOCK,
  /// From one member of a group to others of it, through the chief.
  POST,
  /// A member asks what some others do. The chief says of each what it has heard last, in a DOING, asks them, and says it anew of each that answers.
  WHAT_THEY_DO,
  DOING,
};
inline constexpr ControlKind kLastControlKind = ControlKind::DOING;

/// A kind and a payload that a message below was encoded to.
struct Frame {
  ControlKind kind;
  std::string payload;
};
/// Head, kind and payload, ready to be sent.
[[nodiscard]] std::string encode_frame(ControlKind kind, std::string_view payload);
/// One that several are sent.
using SharedFrame = std::shared_ptr<const std::string>;
/// The length that a head announces.
///
/// Errors   WireError: 0, or more than `max_bytes`.
[[nodiscard]] std::size_t decode_frame_head(std::string_view head, std::size_t max_bytes);
/// What follows the head.
///
/// Errors   WireError: an unknown kind.
[[nodiscard]] Frame decode_frame_body(std::string_view body);

/// With what every HELLO and SEEK begins, whatever follows: what another protocol's look like beyond it nobody knows here.
///
/// Errors   WireError: not even that.
[[nodiscard]] std::uint32_t protocol_of(std::string_view payload);

struct Challenge {
  std::uint32_t protocol = kControlProtocol;
  Nonce nonce{};
  [[nodiscard]] std::string encode() const;
  /// Of another protocol: without the nonce.
  [[nodiscard]] static Challenge decode(std::string_view payload);
};

/// What a worker says of itself.
struct MemberInfo {
  int rank = -1;
  std::string host;
  std::string host_id;  ///< equal for workers that share a machine
  std::int64_t pid = 0;
  std::vector<std::string>
      addresses{};  ///< "host:port" where it can be found when the chief is gone
  [[nodiscard]] RankInfo rank_info() const { return {.rank = rank, .host = host, .pid = pid}; }
  /// Pids and names may be equal in two containers, and two members in one process; but nobody listens where another one does.
  [[nodiscard]] bool is_same_process(const MemberInfo& other) const {
    return host == other.host && host_id == other.host_id && pid == other.pid &&
           addresses == other.addresses;
  }
};

struct Hello {
  std::uint32_t protocol = kControlProtocol;
  std::string library_version;
  int num_workers = 0;
  /// Where they meet for the first time: of the launcher's name for it, or 0.
  std::uint64_t job = 0;
  std::uint64_t epoch = 1;
  MemberInfo member;
  Nonce nonce{};
  Mac mac{};
  /// The proof for a chief that sent `challenge`.
  [[nodiscard]] Mac expected_mac(std::string_view secret, const Nonce& challenge) const;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Hello decode(std::string_view payload);
};

struct Welcome {
  std::uint64_t cluster_id = 0;
  Mac mac{};
  /// The proof for a worker whose hello had `nonce`.
  [[nodiscard]] Mac expected_mac(std::string_view secret, const Nonce& nonce) const;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Welcome decode(std::string_view payload);
};

/// Why a worker may not take part; also what ends a meeting to which not everybody came.
///
/// The first word of whoever listens is proved, for the number that the refused one has sent with its own proof. So whoever listens says nothing that holds for
/// others, and proves nothing to one that has proved nothing: such a one holds another secret, by which it could not tell. Its refusal is without a proof, as a
/// stranger's is, and nothing that a call may end for. After WELCOME or FOUND the connection is believed, and `mac` means nothing.
struct Refused {
  StatusCode code = StatusCode::FAILED_PRECONDITION;
  std::string text{};
  std::vector<RankInfo> culprits{};
  Mac mac{};
  /// The proof for a worker whose hello or question had `nonce`.
  [[nodiscard]] Mac expected_mac(std::string_view secret, const Nonce& nonce) const;
  /// What to say of one without a proof, whoever has written it: one line of bounded length.
  [[nodiscard]] std::string as_hearsay() const;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Refused decode(std::string_view payload);
};

/// Everybody is there.
struct Members {
  std::vector<MemberInfo> members;  // by rank
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Members decode(std::string_view payload);
};

/// One round of a group of workers: each contributes bytes and gets everybody's.
struct RoundId {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): what the linter sees is the compiler's comparison with 0
  friend auto operator<=>(const RoundId&, const RoundId&) = default;
};

struct Exchange {
  RoundId id;
  std::vector<int> members;  ///< world ranks, in the group's order; empty: all
  std::string kind;          ///< "barrier", "broadcast from 0": equal on all members
  std::string bytes;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Exchange decode(std::string_view payload);
};

struct Exchanged {
  RoundId id;
  std::vector<std::string> parts;  ///< in the group's order
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Exchanged decode(std::string_view payload);
};

/// The round has failed, and its group is broken.
struct ExchangeFailed {
  RoundId id;
  StatusCode code = StatusCode::ABORTED;
  std::string text{};
  std::vector<RankInfo> culprits{};
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static ExchangeFailed decode(std::string_view payload);
};

struct WhoIsMissing {
  RoundId id;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static WhoIsMissing decode(std::string_view payload);
};

struct Missing {
  RoundId id;
  std::vector<RankInfo> ranks;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Missing decode(std::string_view payload);
};

/// A member's deadline has passed: the round fails for all that wait in it.
struct GiveUp {
  RoundId id;
  std::string text;  ///< "barrier #3 timed out after 5 s"
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static GiveUp decode(std::string_view payload);
};

/// Reaches all of `to` in one order with everything else that the chief says to them.
struct Post {
  static constexpr std::size_t kMaxBytes = 4096;

  std::uint64_t group = 0;
  int from = -1;        ///< the chief sees to it that this is true
  std::vector<int> to;  ///< ranks of the plane
  std::string bytes;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Post decode(std::string_view payload);
};

struct MemberLost {
  int rank = -1;
  std::string text;  ///< "its connection ended", "no heartbeat for 10 s", "it has left"
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static MemberLost decode(std::string_view payload);
};

struct Abort {
  int origin = -1;
  std::string text{};
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Abort decode(std::string_view payload);
};

/// The chief's question what a member does, or whether it is alive at all.
struct Ask {
  std::uint64_t nonce = 0;  ///< for the answer; 0: any heartbeat is one
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Ask decode(std::string_view payload);
};

struct Heartbeat {
  std::string operation{};    ///< what the worker does now; empty: nothing
  std::uint64_t answers = 0;  ///< the nonce of the Ask; 0: unasked
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Heartbeat decode(std::string_view payload);
};

/// An asker's next one takes the place of the one before.
struct WhatTheyDo {
  std::uint64_t number = 0;  ///< the asker's own
  std::vector<int> ranks;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static WhatTheyDo decode(std::string_view payload);
};

/// Of one of them.
struct Doing {
  std::uint64_t number = 0;
  int rank = -1;
  std::string operation{};  ///< empty: it has never said
  bool is_final = false;    ///< it has answered, or is gone
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Doing decode(std::string_view payload);
};

/// A question without the last two, or the answer to it.
struct ClockReading {
  std::int64_t asked_ns = 0;     ///< by the clock of who asks
  std::int64_t answered_ns = 0;  ///< by the other
  std::string clock{};           ///< the other's trace_clock_id()
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static ClockReading decode(std::string_view payload);
};

}  // namespace crossdevice::detail
