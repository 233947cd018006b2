// SPDX-License-Identifier: Apache-2.0
/// Sockets that programs which are started from this one do not get; Asio's own are inherited.
#pragma once

#include <cstdint>
#include <string_view>
#include <system_error>

#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// The errno where there is none.
[[nodiscard]] std::error_code open_socket(asio::ip::tcp::socket& socket,
                                          const asio::ip::tcp& protocol);
[[nodiscard]] std::error_code open_acceptor(asio::ip::tcp::acceptor& acceptor,
                                            const asio::ip::tcp& protocol);
/// Takes in who waits in the kernel, if anybody does (else EAGAIN); `listening`: does not block, as those of open_acceptor().
[[nodiscard]] std::error_code accept_waiting(int listening, asio::ip::tcp::socket& socket,
                                             asio::ip::tcp::endpoint& from);

/// What somebody does that is to be spoken to first.
enum class Arrival : std::uint8_t {
  WAITS,
  HAS_SPOKEN,
  HAS_GONE,  // without a word
};

/// The same where whoever comes is to be spoken to first. Who does not wait for that is closed at once, which costs a fraction of what a socket of its own does, and
/// `socket` stays as it was: not open. `may_begin`: whether one that has spoken, with these first bytes, counts as one that waits; null: it
/// does whatever it has said.
[[nodiscard]] std::error_code accept_waiting(int listening, asio::ip::tcp::socket& socket,
                                             asio::ip::tcp::endpoint& from, Arrival* arrival,
                                             bool (*may_begin)(std::string_view first));

/// Whether an error is this process's own want: of descriptors, buffers or memory.
[[nodiscard]] bool is_exhaustion(const std::error_code& error);

}  // namespace crossdevice::detail
