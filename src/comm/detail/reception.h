// SPDX-License-Identifier: Apache-2.0
/// Where strangers are received: each gets a challenge and has some seconds for its first frame. What they are is somebody else's to find out.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "comm/detail/control_connection.h"

namespace crossdevice::detail {

/// Threads  the io_context's alone (open() before it runs, too).
class Reception {
 public:
  /// A stranger's answer to `challenge`. An exception that leaves it ends the connection.
  using OnAnswer = std::function<void(const std::shared_ptr<ControlConnection>&,
                                      const Nonce& challenge, const Frame&)>;

  Reception(asio::io_context& io, OnAnswer on_answer) : io_(io), on_answer_(std::move(on_answer)) {}
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  /// Frames of strangers may have that many bytes.
  void open(asio::ip::tcp::acceptor acceptor, std::size_t max_frame_bytes = kMaxStrangerFrameBytes);
  /// Receives nobody any more, and sends those away whose answer has not come.
  void close();

 private:
  void accept_next();
  void receive(asio::ip::tcp::socket socket);
  void greet(asio::ip::tcp::socket socket);

  asio::io_context& io_;
  OnAnswer on_answer_;
  std::size_t max_frame_bytes_ = kMaxStrangerFrameBytes;
  std::optional<asio::ip::tcp::acceptor> acceptor_;
  std::set<std::shared_ptr<ControlConnection>> strangers_;
};

}  // namespace crossdevice::detail
