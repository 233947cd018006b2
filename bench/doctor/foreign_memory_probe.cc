// SPDX-License-Identifier: Apache-2.0
/// Whether one worker may read another's memory as it lies there.
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor/probes.h"
#include "doctor/system.h"

namespace crossdevice::doctor {
namespace {

constexpr std::uint64_t kSecret = 0x0123'4567'89ab'cdefU;

/// Ends with 0, or with the error of process_vm_readv: of a child that reads from its sibling, as workers are siblings.
int read_from(const System& system, pid_t sibling, const std::uint64_t* address) {
  const pid_t reader = ::fork();
  if (reader == 0) {
    std::uint64_t value = 0;
    const iovec here{&value, sizeof(value)};
    const iovec there{const_cast<std::uint64_t*>(address), sizeof(value)};
    const ssize_t count = system.calls.read_process(sibling, &here, 1, &there, 1, 0);
    if (count < 0) ::_exit(errno);
    ::_exit(count == sizeof(value) && value == kSecret ? 0 : EIO);
  }
  int status = 0;
  if (reader < 0 || ::waitpid(reader, &status, 0) != reader) return errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/// Where something else is to have it: MPI and UCX copy with it.
const char* how_to_permit(int error) {
  if (error == ENOSYS) return "MPI and UCX can have it of a kernel with CONFIG_CROSS_MEMORY_ATTACH";
  return "MPI and UCX can have it by sysctl kernel.yama.ptrace_scope=0 as root, and in a container "
         "by docker run --cap-add SYS_PTRACE";
}

}  // namespace

Findings probe_foreign_memory(const System& system) {
  const std::uint64_t secret = kSecret;
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t owner = ::fork();
  if (owner < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (owner == 0) {  // lives until this process lets go of the pipe
    ::close(ends[1]);
    char byte = 0;
    (void)!::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  // After fork() it lies at the same address there.
  const int error = read_from(system, owner, &secret);
  ::close(ends[1]);
  ::close(ends[0]);
  (void)::waitpid(owner, nullptr, 0);

  const std::string scope =
      system.first_line_of("/proc/sys/kernel/yama/ptrace_scope").value_or("none");
  Finding finding{.name = "process_vm_readv"};
  finding.facts = {{"permitted", error == 0}, {"yama_ptrace_scope", scope}};
  finding.text = fmt::format(
      "{} between workers (yama ptrace_scope: {}); not used: this library copies through "
      "a window in shared memory",
      error == 0 ? "permitted" : "refused (" + std::generic_category().message(error) + ")", scope);
  if (error != 0) {
    finding.status = Status::ABSENT;
    finding.text += ", so nothing is lost; " + std::string(how_to_permit(error));
  }
  return {finding};
}

}  // namespace crossdevice::doctor
