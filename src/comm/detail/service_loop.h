// SPDX-License-Identifier: Apache-2.0
/// What a service thread does with its io_context: a handler that throws, for want of memory or descriptors, ends neither the thread nor the process.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include <asio/io_context.hpp>

#include "crossdevice/core/log.h"

namespace crossdevice::detail {

/// Until the context is stopped, or out of work. What a handler throws is told to `on_error`, and the other handlers go on: what hangs on the one that failed (a
/// timer, a connection) is lost, so `on_error` ends what this worker waits for, and begins anew what must not end. Where there is no memory even for that it is
/// called again, between other handlers, until there is some.
template <class OnError>
void run_service(asio::io_context& io, const char* name, OnError on_error) {
  constexpr std::chrono::milliseconds kPause{20};
  const auto tell = [&](const std::exception& error) {
    try {
      on_error(std::string(error.what()));
    } catch (const std::exception&) {
      return false;
    }
    try {
      log(LogSeverity::FAILURE, std::string(name) + ": " + error.what());
    } catch (const std::exception&) {
      return true;  // it ends what waits now, not what begins later: once is enough
    }
    return true;
  };
  const auto go_on = [&] {
    try {
      (void)io.run_one_for(kPause);
    } catch (const std::exception&) {
      return;  // one more; the first one is told for all
    }
  };
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      while (!io.stopped() && !tell(error)) go_on();
    }
  }
}

}  // namespace crossdevice::detail
