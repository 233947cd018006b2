// SPDX-License-Identifier: Apache-2.0
#include "run/worker_process.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/system_error.h"

namespace crossdevice::run {
namespace {

constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_failure("make a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Nothing but the standard streams goes on to the program. A kernel before 5.11 does not know this call; our own descriptors close by
/// themselves there.
void close_the_rest_on_exec() {
  ::syscall(SYS_close_range, 3U, ~0U, static_cast<unsigned>(CLOSE_RANGE_CLOEXEC));
}

struct Child {
  const WorkerSetting& setting;
  const Janitor& janitor;
  pid_t parent;
  int in;  // -1: none
  int out;
  int err;
  char** arguments;
  char** environment;
  const std::vector<cpu_set_t>& cores;  // empty: as they are
};

std::vector<cpu_set_t> mask_of(const std::set<int>& cores) {
  if (cores.empty()) return {};
  std::vector<cpu_set_t> mask(static_cast<std::size_t>(*cores.rbegin()) / CPU_SETSIZE + 1);
  const std::size_t size_bytes = mask.size() * sizeof(cpu_set_t);
  CPU_ZERO_S(size_bytes, mask.data());
  for (const int core : cores) {
    CPU_SET_S(static_cast<std::size_t>(core), size_bytes, mask.data());
  }
  return mask;
}

/// Between fork and exec; returns only with the reason why the program does not run.
int become_the_program(const Child& child) {
  const pid_t self = ::getpid();
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that call: then it is somebody else's child, and nothing will ever kill it.
  if (::getppid() != child.parent) ::_exit(kCannotRun);
  child.janitor.watch_group(self);
  const int input = child.in >= 0 ? child.in : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || ::dup2(input, 0) < 0 || ::dup2(child.out, 1) < 0 || ::dup2(child.err, 2) < 0) {
    return errno;
  }
  if (child.setting.network_namespace >= 0 &&
      ::setns(child.setting.network_namespace, CLONE_NEWNET) != 0) {
    return errno;
  }
  if (!child.cores.empty() &&
      ::sched_setaffinity(0, child.cores.size() * sizeof(cpu_set_t), child.cores.data()) != 0) {
    return errno;
  }
  ::setrlimit(RLIMIT_NOFILE, &child.setting.max_open_files);
  ::signal(SIGPIPE, child.setting.ignores_sigpipe ? SIG_IGN : SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &child.setting.signal_mask, nullptr);
  close_the_rest_on_exec();
  ::execvpe(child.arguments[0], child.arguments, child.environment);
  return errno;
}

/// The reason why the program does not run; 0 if it does. The pipe ends at exec.
int start_error(int pipe) {
  int error = 0;
  for (;;) {
    const ssize_t count = ::read(pipe, &error, sizeof error);
    if (count < 0 && errno == EINTR) continue;
    return count == static_cast<ssize_t>(sizeof error) ? error : 0;
  }
}

/// As in a shell, the current folder is none of those that a bare name is looked for in.
std::string hint_for(const std::string& program, int error) {
  std::error_code ignored;
  const bool is_here = error == ENOENT && program.find('/') == std::string::npos &&
                       std::filesystem::is_regular_file(program, ignored) &&
                       ::access(program.c_str(), X_OK) == 0;
  return is_here ? "; there is one in this folder: ./" + program : "";
}

}  // namespace

CannotExecute::CannotExecute(const std::string& program, int error)
    : std::runtime_error(system_failure("run " + program, error).what() + hint_for(program, error)),
      exit_code_(error == ENOENT ? kNotFound : kCannotRun) {}

WorkerProcess start_worker(const WorkerSetting& setting, const Janitor& janitor) {
  Pipe in;
  if (setting.has_input) {
    in = make_pipe();
    ::fcntl(in.writer.get(), F_SETFL, O_NONBLOCK);
  }
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe failure = make_pipe();
  ::fcntl(out.reader.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.reader.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> command = setting.command;
  std::vector<std::string> environment = setting.environment;
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  const std::vector<cpu_set_t> cores = mask_of(setting.cores);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw system_failure("start a process");
  if (pid == 0) {
    const int error = become_the_program(
        {setting, janitor, parent, in.reader.get(), out.writer.get(), err.writer.get(),
         const_cast<char**>(arguments.data()), const_cast<char**>(variables.data()), cores});
    if (::write(failure.writer.get(), &error, sizeof error) < 0) {
      // The parent then sees a program that ends with this status.
    }
    ::_exit(kCannotRun);
  }
  ::setpgid(pid, pid);  // here too, so that it holds whichever of the two comes first
  failure.writer.reset();
  const int error = start_error(failure.reader.get());
  if (error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    janitor.forget_group(pid);
    throw CannotExecute(setting.command.front(), error);
  }
  return {pid, std::move(in.writer), std::move(out.reader), std::move(err.reader)};
}

}  // namespace crossdevice::run
