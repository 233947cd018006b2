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

/// The C library's, which this file's stand before.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));  // NOLINT
}
using SendMessage = ssize_t(int, const msghdr*, int);
using SendTo = ssize_t(int, const void*, std::size_t, int, const sockaddr*, socklen_t);
using ReceiveMessage = ssize_t(int, msghdr*, int);
using ReceiveFrom = ssize_t(int, void*, std::size_t, int, sockaddr*, socklen_t*);

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

using crossdevice::chaos::Direction;
using crossdevice::chaos::next;
using crossdevice::chaos::note_message;

CROSSDEVICE_EXPORT ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto function = next<crossdevice::chaos::SendMessage>("sendmsg");
  note_message(Direction::SEND);
  if (function != nullptr) return function(socket, message, flags);
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

CROSSDEVICE_EXPORT ssize_t sendto(int socket, const void* bytes, std::size_t size, int flags,
                                  const sockaddr* address, socklen_t address_size) {
  static const auto function = next<crossdevice::chaos::SendTo>("sendto");
  note_message(Direction::SEND);
  if (function != nullptr) return function(socket, bytes, size, flags, address, address_size);
  return ::syscall(SYS_sendto, socket, bytes, size, flags, address, address_size);
}

CROSSDEVICE_EXPORT ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto function = next<crossdevice::chaos::ReceiveMessage>("recvmsg");
  const ssize_t count = function != nullptr ? function(socket, message, flags)
                                            : ::syscall(SYS_recvmsg, socket, message, flags);
  if (count > 0) note_message(Direction::RECEIVE);
  return count;
}

CROSSDEVICE_EXPORT ssize_t recvfrom(int socket, void* bytes, std::size_t size, int flags,
                                    sockaddr* address, socklen_t* address_size) {
  static const auto function = next<crossdevice::chaos::ReceiveFrom>("recvfrom");
  const ssize_t count =
      function != nullptr
          ? function(socket, bytes, size, flags, address, address_size)
          : ::syscall(SYS_recvfrom, socket, bytes, size, flags, address, address_size);
  if (count > 0) note_message(Direction::RECEIVE);
  return count;
}

}  // extern "C"
