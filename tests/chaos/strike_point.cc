// SPDX-License-Identifier: Apache-2.0
#include "chaos/strike_point.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crossdevice/core/export.h"

namespace crossdevice::chaos {
namespace {

/// Of each direction: how many messages are left, that of the strike included; 0: none is to come.
std::array<std::atomic<std::uint64_t>, 2> left{};
std::function<void()>& strike() {
  static auto* const all = new std::function<void()>;  // service threads may outlive main()
  return *all;
}

std::atomic<std::uint64_t>& left_of(Direction direction) {
  return left[static_cast<std::size_t>(direction)];
}

void note_message(Direction direction) {
  std::atomic<std::uint64_t>& messages = left_of(direction);
  std::uint64_t now = messages.load(std::memory_order_acquire);
  while (now != 0 && !messages.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel)) {
  }
  if (now == 1) strike()();
}

using SendFunction = ssize_t (*)(int, const msghdr*, int);
using ReceiveFunction = ssize_t (*)(int, msghdr*, int);

}  // namespace

void strike_at_message(Direction direction, std::uint64_t number,
                       std::function<void()> strike_now) {
  strike() = std::move(strike_now);
  left_of(direction).store(number, std::memory_order_release);
}

bool disarm_strike() {
  bool was_armed = false;
  for (std::atomic<std::uint64_t>& each : left) was_armed |= each.exchange(0) != 0;
  return was_armed;
}

}  // namespace crossdevice::chaos

extern "C" {

CROSSDEVICE_EXPORT ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  using crossdevice::chaos::SendFunction;
  static const auto function =
      reinterpret_cast<SendFunction>(::dlsym(RTLD_NEXT, "sendmsg"));  // NOLINT
  crossdevice::chaos::note_message(crossdevice::chaos::Direction::SEND);
  if (function != nullptr) return function(socket, message, flags);
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

CROSSDEVICE_EXPORT ssize_t recvmsg(int socket, msghdr* message, int flags) {
  using crossdevice::chaos::ReceiveFunction;
  static const auto function =
      reinterpret_cast<ReceiveFunction>(::dlsym(RTLD_NEXT, "recvmsg"));  // NOLINT
  const ssize_t count = function != nullptr ? function(socket, message, flags)
                                            : ::syscall(SYS_recvmsg, socket, message, flags);
  if (count > 0) crossdevice::chaos::note_message(crossdevice::chaos::Direction::RECEIVE);
  return count;
}

}  // extern "C"
