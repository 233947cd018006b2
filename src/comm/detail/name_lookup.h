// SPDX-License-Identifier: Apache-2.0
/// Where a host's name leads, asked without holding anybody up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

namespace crossdevice::detail {

struct FoundEndpoints {
  std::vector<asio::ip::tcp::endpoint> endpoints;
  std::string error;  ///< why there are none; else empty
};

/// Turns a name into endpoints; may take as long as it likes, and may throw.
using NameResolver = std::function<FoundEndpoints(const std::string& host, std::uint16_t port)>;

/// As the system does it: getaddrinfo, which knows no deadline and cannot be stopped.
[[nodiscard]] FoundEndpoints resolve_by_system(const std::string& host, std::uint16_t port);

/// One question at a time. Asio's own resolver would do, but for its end: an io_context waits for the thread that asks, which takes minutes where a name
/// server does not answer. Here the thread is nobody's, and what it finds too late is dropped.
///
/// Threads  the io_context's alone, which outlives this.
class NameLookup {
 public:
  using Answer = std::function<void(const FoundEndpoints&)>;

  /// `resolve` empty: resolve_by_system().
  NameLookup(asio::io_context& io, NameResolver resolve);
  ~NameLookup() { cancel(); }
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  /// `answer` runs on the io_context once, later, unless cancel() comes first; what was asked before is cancelled. An address in numbers asks nobody.
  ///
  /// Errors   ResourceExhaustedError: the system has no more threads; then nothing was asked.
  void start(const std::string& host, std::uint16_t port, Answer answer);
  /// The answer to what was asked does not run any more.
  void cancel();

 private:
  struct Question;

  asio::io_context& io_;
  NameResolver resolve_;
  std::shared_ptr<Question> question_;
};

}  // namespace crossdevice::detail
