// SPDX-License-Identifier: Apache-2.0
/// A connection of the control plane: frames in, frames out.
///
/// Who is silent. Heartbeats go both ways, but each waits for the frame before it, which may take longer to travel than a silent peer is waited for: all parts of
/// a round together have up to 64 MiB. So what counts is not when a frame has come but when a piece of one has. Who sends it need not be looked at besides: what
/// the other side says does not wait for what this side sends, but for what the other side sends, whose pieces come in here. A piece, and not a byte: a peer
/// that has stopped in the middle of a frame, or trickles, is silent, and a frame of n pieces takes n + 2 times as long as a silent peer is waited for, at most.
/// What a call waits for beyond that is its deadline's to say, whoever is alive.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <asio/ip/tcp.hpp>

#include "comm/detail/control_message.h"
#include "comm/detail/tls_socket.h"

namespace crossdevice::detail {

/// Threads  the io_context's thread alone. Handlers may close it, and may let go of it.
/// Memory   keeps itself alive while an operation is under way. Frames of up to `max_frame_bytes` are accepted.
class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  using OnFrame = std::function<void(const Frame&)>;
  /// Called once, when the connection has ended by itself or by the peer; not after close().
  using OnEnd = std::function<void(const std::string& why)>;
  using Clock = std::chrono::steady_clock;
  /// Of a frame. Also what a length alone makes somebody allocate.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 10;

  /// `tls`: what is said is encrypted; null: it is not. Errors   ResourceExhaustedError or InternalError.
  ControlConnection(asio::ip::tcp::socket socket, std::shared_ptr<const TlsKey> tls,
                    TlsChannel::Role role);

  void start(OnFrame on_frame, OnEnd on_end);
  /// Other handlers from now on.
  void take_over(OnFrame on_frame, OnEnd on_end);
  /// Queues an encoded frame.
  void send(std::string frame) { send(std::make_shared<const std::string>(std::move(frame))); }
  void send(SharedFrame frame);
  /// Closes when everything queued has been sent (or the peer does not take it); no handler is called any more.
  void close_after_sending();
  void close();
  void set_max_frame_bytes(std::size_t max_frame_bytes) { max_frame_bytes_ = max_frame_bytes; }
  [[nodiscard]] bool is_open() const { return !closed_; }
  [[nodiscard]] bool has_sent_all() const { return queue_.empty(); }
  [[nodiscard]] bool is_from_this_machine() const { return is_loopback_; }
  /// Once it has ended: whether that is because only one side encrypts, or both with different secrets.
  [[nodiscard]] TlsTrouble trouble() const { return trouble_; }
  /// Once it has ended: whether that is because there was no memory here for what was said.
  [[nodiscard]] bool has_lacked_memory() const { return has_lacked_memory_; }
  /// Whether anything has come, whole or not; see TlsSocket.
  [[nodiscard]] bool has_heard() const { return words_.has_heard(); }
  /// When a frame has last begun or gone on by a piece; at first, when this was made.
  [[nodiscard]] Clock::time_point last_heard() const { return last_heard_; }
  /// When a piece of what is queued has last been sent; at first, when this was made.
  [[nodiscard]] Clock::time_point last_sent() const { return last_sent_; }
  /// As if it had just now: what was said before says nothing about the peer.
  void count_as_heard() { last_heard_ = Clock::now(); }

 private:
  void read_head();
  void read_body(std::size_t size);
  void write_next();
  void stop_sending();
  void end(std::error_code error);
  void end(const std::string& why);
  void end_for_want(const std::bad_alloc& want);
  void end_by_length(const std::string& why);

  asio::ip::tcp::socket socket_;
  TlsSocket words_{socket_};
  const bool is_encrypted_;
  TlsTrouble trouble_ = TlsTrouble::NONE;
  bool is_loopback_ = false;
  OnFrame on_frame_;
  OnEnd on_end_;
  std::size_t max_frame_bytes_ = kMaxStrangerFrameBytes;
  std::array<char, kFrameHeadBytes> head_{};
  std::string body_;
  Clock::time_point last_heard_ = Clock::now();
  Clock::time_point last_sent_ = Clock::now();
  std::size_t num_sent_ = 0;  // bytes of the first in the queue
  std::deque<SharedFrame> queue_;
  bool can_send_ = true;
  bool has_lacked_memory_ = false;
  bool closed_ = false;
  bool closing_ = false;
};

}  // namespace crossdevice::detail
