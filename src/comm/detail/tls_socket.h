// SPDX-License-Identifier: Apache-2.0
/// What is said on a connected socket of Asio's, encrypted where the job wants that.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>

#include "comm/detail/tls_channel.h"

namespace crossdevice::detail {

/// How a kind of connection is encrypted; without a key it is not.
struct TlsSetting {
  std::shared_ptr<const TlsKey> key{};
  TlsChannel::Role role = TlsChannel::Role::DIALLER;
  std::string_view plain_greeting{};  // see TlsChannel
};

/// Lies beside the socket that it is about, and is told when that is connected and when it is closed. One read and one write at a time. Where nothing is encrypted,
/// it lives as long as the handler of a read.
///
/// Memory   what is under way is Asio's, as where nothing is encrypted: a handler that its io_context lets go of lets go of its owner.
/// Threads  the io_context's alone.
class TlsSocket {
 public:
  using Handler = std::function<void(std::error_code, std::size_t)>;

  explicit TlsSocket(asio::ip::tcp::socket& socket) : socket_(socket) {}
  ~TlsSocket() { forget(); }
  TlsSocket(const TlsSocket&) = delete;
  TlsSocket& operator=(const TlsSocket&) = delete;

  /// The socket is connected. Errors   ResourceExhaustedError or InternalError.
  void begin(const TlsSetting& setting);
  /// The socket is closed, or somebody else's. What is under way is not heard of any more, where it is encrypted.
  void forget();
  /// Fills all of `bytes`, or ends with an error. Not before it has returned.
  void read(asio::mutable_buffer bytes, Handler handler);
  void write(asio::const_buffer bytes, Handler handler);
  /// So few bytes that they fit into the buffers of a connection that nothing is written to; `error`: they do not.
  void write_now(asio::const_buffer bytes, std::error_code& error);
  /// Something has come that a read would find.
  [[nodiscard]] bool has_input() const;
  /// Whether anything has come, to be believed or not: not counted is a handshake that is done, which says only that the other side holds the secret.
  [[nodiscard]] bool has_heard() const;
  /// Why the connection cannot be believed; NONE: it can.
  [[nodiscard]] TlsTrouble trouble() const;
  /// What to say of an error.
  [[nodiscard]] std::string text_of(std::error_code error) const;
  /// Null where nothing is encrypted. The socket is somebody else's from now on.
  [[nodiscard]] std::unique_ptr<TlsChannel> take_channel();

 private:
  class Stream;
  asio::ip::tcp::socket& socket_;
  std::shared_ptr<Stream> stream_;  // null: nothing is encrypted
  bool has_heard_ = false;          // of a stream only once it is forgotten
};

}  // namespace crossdevice::detail
