// SPDX-License-Identifier: Apache-2.0
#include "run/batch_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/descriptor.h"
#include "run/system_error.h"

namespace crossdevice::run {
namespace {

constexpr int kNotFound = 127;
constexpr std::size_t kMaxAnswerBytes = 1000;

/// A file without a name: whoever writes or reads it never waits for anybody.
Descriptor scratch_file(const std::string& content) {
  Descriptor file(::memfd_create("crossdevice-run", MFD_CLOEXEC));
  if (!file.is_open()) throw system_failure("make a scratch file");
  if (::pwrite(file.get(), content.data(), content.size(), 0) !=
      static_cast<ssize_t>(content.size())) {
    throw system_failure("write a scratch file");
  }
  return file;
}

/// Between fork and exec.
[[noreturn]] void become(const char* program, const std::array<std::string, 2>& elsewhere,
                         int input, int answer) {
  ::dup2(input, 0);
  ::dup2(answer, 1);
  ::dup2(answer, 2);
  ::signal(SIGPIPE, SIG_DFL);
  ::execlp(program, program, "-batch", "-", nullptr);
  for (const std::string& path : elsewhere) {
    ::execl(path.c_str(), program, "-batch", "-", nullptr);
  }
  ::_exit(kNotFound);
}

/// What the program has said, as one line.
std::string read_answer(int file) {
  std::string text(kMaxAnswerBytes, '\0');
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

void run_batch(const std::string& program, const std::string& commands,
               const std::string& purpose) {
  const Descriptor input = scratch_file(commands);
  const Descriptor answer = scratch_file("");
  const std::array<std::string, 2> elsewhere{"/usr/sbin/" + program, "/sbin/" + program};
  const pid_t pid = ::fork();
  if (pid < 0) throw system_failure("start a process");
  if (pid == 0) become(program.c_str(), elsewhere, input.get(), answer.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    throw std::runtime_error(fmt::format(
        "cannot {}: the program {} is missing (Debian package iproute2)", purpose, program));
  }
  const std::string said = read_answer(answer.get());
  throw std::runtime_error(fmt::format("cannot {}: {} says: {}", purpose, program,
                                       said.empty() ? "nothing, but has failed" : said));
}

}  // namespace crossdevice::run
