// SPDX-License-Identifier: Apache-2.0
/// Starts the library's own threads the way a guest does.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <thread>

namespace crossdevice::detail {

/// Starts a thread that runs `body`, which must not throw. Debuggers and ps show the first 15 characters of `name`. The
/// process's signals are blocked in it, so that their handlers run on the program's threads only; what a thread raises by
/// its own fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) still reaches the program's handlers, and so do the signals in `also_open`.
///
/// Errors   ResourceExhaustedError: the system has no more threads.
[[nodiscard]] std::thread start_service_thread(std::string_view name, std::function<void()> body,
                                               std::initializer_list<int> also_open = {});

}  // namespace crossdevice::detail
