// SPDX-License-Identifier: Apache-2.0
/// Sockets that programs which are started from this one do not get; Asio's own are inherited.
#pragma once

#include <string_view>
#include <system_error>

#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// The errno where there is none.
[[nodiscard]] std::error_code open_socket(asio::ip::tcp::socket& socket,
                                          const asio::ip::tcp& protocol);
[[nodiscard]] std::error_code open_acceptor(asio::ip::tcp::acceptor& acceptor,
                                            const asio::ip::tcp& protocol);
/// Takes in who waits in the kernel, if anybody does (else EAGAIN); `listening`: does not block, as those of open_acceptor(). `may_begin`, where whoever comes is to be spoken
/// to first: whether one that has spoken before, with these first bytes, is taken in none the less. Else it is closed at once, which costs a fraction of what a socket of
/// its own does, and `socket` stays as it was: not open.
[[nodiscard]] std::error_code accept_waiting(int listening, asio::ip::tcp::socket& socket,
                                             asio::ip::tcp::endpoint& from,
                                             bool (*may_begin)(std::string_view first) = nullptr);

/// Whether an error is this process's own want: of descriptors, buffers or memory.
[[nodiscard]] bool is_exhaustion(const std::error_code& error);

}  // namespace crossdevice::detail
