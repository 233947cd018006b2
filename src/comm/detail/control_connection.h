// SPDX-License-Identifier: Apache-2.0
/// A connection of the control plane: frames in, frames out.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
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
  /// Whether anything has come, whole or not.
  [[nodiscard]] bool has_heard() const { return has_heard_; }

 private:
  void read_head();
  void read_body(std::size_t size);
  void write_next();
  void stop_sending();
  void end(std::error_code error);
  void end(const std::string& why);
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
  std::deque<SharedFrame> queue_;
  bool can_send_ = true;
  bool has_heard_ = false;
  bool closed_ = false;
  bool closing_ = false;
};

}  // namespace crossdevice::detail
