// SPDX-License-Identifier: Apache-2.0
/// Who knocks at a door and says whatever it wants to.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/detail/control_message.h"
#include "comm/detail/tls_channel.h"

namespace crossdevice::strangers {

/// Where a door is, and whence it is knocked at: IPv4 addresses.
struct Where {
  std::uint16_t port = 0;
  std::string address = "127.0.0.1";
  std::string from{};        // empty: as the system wants
  std::string tls_secret{};  // whose key the caller encrypts with; empty: it does not encrypt
};

/// One connection. Where it is encrypted, the handshake is made by the first word that is said or heard; one that fails is an end of the connection.
class Caller {
 public:
  /// Connects; see is_connected().
  explicit Caller(const Where& where);
  ~Caller();
  Caller(Caller&& other) noexcept;
  Caller& operator=(Caller&&) = delete;
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  [[nodiscard]] bool is_connected() const { return fd_ >= 0; }
  [[nodiscard]] int descriptor() const { return fd_; }
  /// The errno where it is not.
  [[nodiscard]] int error() const { return error_; }
  /// As much as the other side takes without being waited for, unless for a handshake; how much.
  std::size_t say(std::string_view bytes) const;
  /// All that comes until the other side ends the connection; nothing where it does not within `limit`.
  [[nodiscard]] std::optional<std::string> hear_all(
      std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  /// So many bytes; nothing where they do not come within `limit`.
  [[nodiscard]] std::optional<std::string> hear(
      std::size_t size, std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  /// The next frame; nothing where the connection ends before.
  [[nodiscard]] std::optional<detail::Frame> hear_frame() const;
  /// The number in the challenge that comes first.
  [[nodiscard]] detail::Nonce hear_challenge() const;
  /// Whether it has been ended by the other side, now. What it had said before is lost.
  [[nodiscard]] bool has_ended() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  [[nodiscard]] bool shake_hands(Time limit) const;
  void flush() const;
  /// What there is to be heard, at most `size` bytes; empty: the connection has ended. Nothing where nothing comes in time.
  [[nodiscard]] std::optional<std::string> hear_some(std::size_t size, Time limit) const;
  /// From the network.
  [[nodiscard]] std::optional<std::size_t> receive(char* bytes, std::size_t size, Time limit) const;

  int fd_;
  int error_ = 0;
  std::unique_ptr<detail::TlsChannel> tls_;  // null: nothing is encrypted
};

}  // namespace crossdevice::strangers
