// SPDX-License-Identifier: Apache-2.0
#include "run/janitor.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <set>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "run/system_error.h"

namespace crossdevice::run {
namespace {

constexpr int kPipe = 3;

enum class What : int { WATCH, FORGET, GOODBYE };

/// Smaller than PIPE_BUF, so that the kernel keeps each in one piece whoever writes at the same time.
struct Message {
  What what = What::GOODBYE;
  pid_t group = 0;
};

void send(int pipe, const Message& message) {
  // A janitor that somebody has killed is no reason to stop the job: SIGPIPE is ignored here, and so is the error.
  while (::write(pipe, &message, sizeof message) < 0 && errno == EINTR) {
  }
}

/// Whether the whole message came; not so at the end of the pipe.
bool receive(int pipe, Message& message) {
  for (;;) {
    const ssize_t count = ::read(pipe, &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    return count == static_cast<ssize_t>(sizeof message);
  }
}

void detach(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "cd-run-janitor");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    ::signal(number, SIG_IGN);
  }
  // It must hold nothing open that somebody waits for the end of.
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(nothing, fd);
  ::dup2(pipe, kPipe);
  ::syscall(SYS_close_range, static_cast<unsigned>(kPipe) + 1, ~0U, 0U);
  if (::chdir("/") != 0) {
    // It keeps a directory in use, which is not worth a word.
  }
}

[[noreturn]] void serve(int pipe, const std::string& file) {
  detach(pipe);
  std::set<pid_t> groups;
  for (Message message; receive(kPipe, message);) {
    switch (message.what) {
      case What::WATCH:
        groups.insert(message.group);
        break;
      case What::FORGET:
        groups.erase(message.group);
        break;
      case What::GOODBYE:
        ::_exit(0);
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::unlink(file.c_str());
  ::_exit(0);
}

}  // namespace

Janitor::Janitor(const std::string& file) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_failure("make a pipe");
  Descriptor reader(ends[0]);
  pipe_ = Descriptor(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) throw system_failure("start a process");
  if (pid_ == 0) {
    pipe_.reset();
    serve(reader.get(), file);
  }
}

Janitor::~Janitor() {
  send(pipe_.get(), {What::GOODBYE, 0});
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Janitor::watch_group(pid_t group) const { send(pipe_.get(), {What::WATCH, group}); }

void Janitor::forget_group(pid_t group) const { send(pipe_.get(), {What::FORGET, group}); }

}  // namespace crossdevice::run
