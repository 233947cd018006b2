// SPDX-License-Identifier: Apache-2.0
/// What a service thread does with its io_context: a handler that throws, for want of memory or descriptors, ends neither the thread nor the process.
#pragma once

#include <exception>
#include <string>

#include <asio/io_context.hpp>

#include "crossdevice/core/log.h"

namespace crossdevice::detail {

/// Until the context is stopped, or out of work. What a handler throws is told to `on_error`, and the other handlers go on: what hangs on the one that failed (a
/// timer, a connection) is lost, so `on_error` ends what this worker waits for.
template <class OnError>
void run_service(asio::io_context& io, const char* name, OnError on_error) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      try {
        on_error(std::string(error.what()));
        log(LogSeverity::FAILURE, std::string(name) + ": " + error.what());
      } catch (const std::exception&) {
        continue;  // not even the words are to be had
      }
    }
  }
}

}  // namespace crossdevice::detail
