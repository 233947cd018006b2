// SPDX-License-Identifier: Apache-2.0
#include "chaos/shifted_clock.h"

#include <cerrno>
#include <ctime>
#include <exception>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/descriptor.h"
#include "run/system_error.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

namespace crossdevice::chaos {

void shift_monotonic_clock(std::uint64_t seconds) {
  if (::unshare(CLONE_NEWTIME) != 0) throw run::system_failure("make a time namespace");
  const std::string offsets = fmt::format("monotonic {} 0\n", seconds);
  const run::Descriptor file(::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
  if (!file.is_open() ||
      ::write(file.get(), offsets.data(), offsets.size()) != static_cast<ssize_t>(offsets.size())) {
    throw run::system_failure("shift a clock");
  }
  // It is for children, unless it is entered.
  const run::Descriptor there(::open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC));
  if (!there.is_open() || ::setns(there.get(), CLONE_NEWTIME) != 0) {
    throw run::system_failure("enter a time namespace");
  }
}

double monotonic_lead_seconds() {
  timespec shifted{};
  timespec other{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &shifted);
  (void)::clock_gettime(CLOCK_BOOTTIME, &other);
  return static_cast<double>(shifted.tv_sec - other.tv_sec) +
         static_cast<double>(shifted.tv_nsec - other.tv_nsec) / 1e9;
}

std::string shifted_clock_obstacle() {
  const pid_t pid = ::fork();
  if (pid < 0) return "no process can be started";
  if (pid == 0) {
    try {
      shift_monotonic_clock(1);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0 ? "" : "no time namespace can be made here: it needs root and Linux 5.6";
}

}  // namespace crossdevice::chaos
