// SPDX-License-Identifier: Apache-2.0
#include "chaos/jumping_clock.h"

#include <atomic>
#include <chrono>
#include <ctime>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "crossdevice/core/export.h"

namespace crossdevice::chaos {
namespace {

using ClockFunction = int (*)(clockid_t, timespec*);

std::atomic<std::int64_t> lead_seconds{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// The C library's.
int ask_clock(clockid_t clock, timespec* time) {
  static const auto function =
      reinterpret_cast<ClockFunction>(::dlsym(RTLD_NEXT, "clock_gettime"));  // NOLINT
  if (function != nullptr) return function(clock, time);
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
}

}  // namespace

void jump_real_time_clock(std::int64_t seconds) { lead_seconds.fetch_add(seconds); }

std::int64_t real_time_lead_seconds() {
  timespec machines{};
  (void)::syscall(SYS_clock_gettime, CLOCK_REALTIME, &machines);
  // Of the standard library, which is a shared one.
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - machines.tv_sec;
}

}  // namespace crossdevice::chaos

extern "C" {

CROSSDEVICE_EXPORT int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = crossdevice::chaos::ask_clock(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    time->tv_sec += crossdevice::chaos::lead_seconds.load();
  }
  return result;
}

CROSSDEVICE_EXPORT int gettimeofday(timeval* __restrict time, void* __restrict /*zone*/) noexcept {
  timespec now{};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

CROSSDEVICE_EXPORT time_t time(time_t* where) noexcept {
  timespec now{};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (where != nullptr) *where = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
