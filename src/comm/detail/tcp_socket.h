// SPDX-License-Identifier: Apache-2.0
/// Sockets that programs which are started from this one do not get; Asio's own are inherited.
#pragma once

#include <system_error>

#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

/// The errno where there is none.
[[nodiscard]] std::error_code open_socket(asio::ip::tcp::socket& socket,
                                          const asio::ip::tcp& protocol);
[[nodiscard]] std::error_code open_acceptor(asio::ip::tcp::acceptor& acceptor,
                                            const asio::ip::tcp& protocol);
/// Takes in who waits in the kernel, if anybody does (else EAGAIN); of an acceptor that open_acceptor() has opened.
[[nodiscard]] std::error_code accept_waiting(asio::ip::tcp::acceptor& acceptor,
                                             asio::ip::tcp::socket& socket,
                                             asio::ip::tcp::endpoint& from);

/// Whether an error is this process's own want: of descriptors, buffers or memory.
[[nodiscard]] bool is_exhaustion(const std::error_code& error);

}  // namespace crossdevice::detail
