// SPDX-License-Identifier: Apache-2.0
/// Messages between the members of a group: what schedules run over, whatever carries the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

class Transfer;

namespace detail {
class TransportKind;
struct TransferAccess;

/// What a transport knows of a message. Part of a Transfer, so that queueing one allocates nothing.
struct TransferState {
  const std::byte* out = nullptr;  // of a send
  std::byte* in = nullptr;         // of a receive
  std::size_t size = 0;
  std::size_t moved = 0;     // bytes that are there already, or have left
  std::uint64_t number = 0;  // among the messages of one direction in one operation
  Transfer* next = nullptr;  // in the queue of its peer and direction, then among the completed
  Transfer* previous = nullptr;
  std::uint64_t transport = 0;  // the one it was given to last; each has a number
  int peer = -1;
  bool is_send = false;
  bool is_under_way = false;
  bool is_done = false;
  bool is_untaken = false;  // among the completed
};
}  // namespace detail

/// One message on its way out or in. The caller's object: it stays where it is from send() or receive() until it has been taken (wait(transfer) and
/// take_completed() do), or until the transport has thrown. It may then be used again.
class CROSSDEVICE_EXPORT Transfer {
 public:
  Transfer() = default;
  ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// A send: the bytes may be overwritten. A receive: all bytes are there.
  [[nodiscard]] bool is_done() const { return state_.is_done; }
  /// The caller's own, to recognise it by.
  std::size_t tag = 0;

 private:
  friend struct detail::TransferAccess;
  detail::TransferState state_;
};

/// What has been moved, without heads and hellos.
struct TransportCounters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  friend bool operator==(const TransportCounters&, const TransportCounters&) = default;
};

/// What had moved between this member and another one in an operation when it failed.
struct PeerTraffic {
  int rank = 0;
  std::uint64_t num_sent = 0;      ///< messages that were given to the transport
  std::uint64_t num_received = 0;  ///< messages that had come, whole
  bool is_awaited = false;         ///< whether another one was
};

/// Made by make_in_process_transports(), make_tcp_transport() or make_ucx_transport().
///
/// Order    the k-th message sent to a peer is taken by the k-th receive from there. Different peers, and the two directions, are independent.
/// Memory   bytes are read and written where they lie, on the caller's thread or, in process, on the peer's; nothing is allocated. No byte of a
///          receive is written before the message's head has been compared: see begin().
/// Errors   what waits throws: UnavailableError (a member is gone), AbortedError (a member, or abort_collective_ops, ended it), InternalError (the members
///          are in different operations, or sizes differ), DeadlineExceededError (names the peers that were waited for; the others get it too).
///          Afterwards the transport is broken: the same is thrown by every later call. Before anything is thrown all transfers are let go of:
///          nobody touches their memory any more.
/// Threads  one at a time, but for stop() and counters() which any thread may call.
/// Time     waiting spins, then yields, then sleeps in the kernel; nothing moves unless somebody waits or polls. Who still waits after JoinOptions'
///          stall_warning_seconds (in process: 30 s) says so on the log. The destructor waits for nobody; what is under way then fails at the peers.
class CROSSDEVICE_EXPORT Transport {
 public:
  explicit Transport(std::unique_ptr<detail::TransportKind> kind);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int num_ranks() const;

  /// Makes sure that messages can be exchanged with `peers`. Each of them names this rank too; connections are kept. To be called before
  /// anything is sent to or received from them.
  ///
  /// Errors   ValueError: a peer outside [0, num_ranks), or this rank.
  void connect(std::span<const int> peers, const Deadline& deadline);

  /// What the messages from now on belong to; says so in their heads. A message whose head says otherwise ends the transport on all members with an
  /// InternalError that tells both. Operations are counted, so that two equal ones are told apart.
  ///
  /// Errors   FailedPreconditionError: something is under way.
  void begin(const GroupOperationInfo& operation);

  /// Queues a message. `bytes` may be empty, and stay as they are until the transfer is done.
  ///
  /// Errors   ValueError: a peer that is not connected, a transfer that is under way.
  void send(int to, std::span<const std::byte> bytes, Transfer& transfer);
  void receive(int from, std::span<std::byte> bytes, Transfer& transfer);
  /// A message to a peer and one from there, and a wait for both: send(), receive(), and wait() for each, at less cost.
  ///
  /// Errors   as theirs; ValueError, too: one transfer for both.
  void exchange(int with, std::span<const std::byte> out, Transfer& sending,
                std::span<std::byte> in, Transfer& receiving, const Deadline& deadline);

  /// Moves what can be moved without waiting; whether anything moved.
  bool poll();
  /// The same, and hears what members have to say that nothing is expected from: that they have given up, or make another call than this member. For who waits
  /// for something else than messages; who waits here hears it anyway.
  void look();
  /// For who does something long between messages, or need not wait for any: throws DeadlineExceededError where the deadline has passed. The others hear that it
  /// is this rank's that has.
  void require_time_left(const Deadline& deadline);
  /// Looks until the deadline, when it returns.
  void look_until(const Deadline& deadline);
  /// Returns at once if a completed transfer has not been taken, or nothing is under way; else when a transfer completes.
  void wait(const Deadline& deadline);
  /// Until this one is done, and takes it: take_completed() does not give it again.
  ///
  /// Errors   ValueError: a transfer that was not given to this transport.
  void wait(Transfer& transfer, const Deadline& deadline);
  /// A transfer that has completed, each once, in any order; null: none.
  [[nodiscard]] Transfer* take_completed();

  /// Ends what this and, as far as they can be told, the other members wait for, now and later; the first call counts. `culprits` are named by
  /// everybody's errors; where there are none, this rank is by the others'.
  void stop(StatusCode code, const std::string& text, std::vector<RankInfo> culprits = {});

  [[nodiscard]] TransportCounters counters() const;
  /// Once something has been thrown: of the operation that failed, by rank of those with whom anything was exchanged. For the owner's thread.
  [[nodiscard]] std::span<const PeerTraffic> traffic_at_end() const;

 private:
  std::unique_ptr<detail::TransportKind> kind_;
};

}  // namespace crossdevice
