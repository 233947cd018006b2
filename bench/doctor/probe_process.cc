// SPDX-License-Identifier: Apache-2.0
#include "doctor/probe_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/trace.h"

#include "doctor/refusal.h"
#include "support/program.h"

namespace crossdevice::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kWait{10};  // a process in the kernel's hands may not end at once
constexpr std::chrono::milliseconds kTurn{2};

/// A child and what it writes.
class ProbeProcess {
 public:
  explicit ProbeProcess(const Probe& probe) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    std::array<int, 2> out{};
    std::array<int, 2> error{};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(error.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe");
    }
    pid_ = ::fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(error[1], STDERR_FILENO);
      ::execl(program.c_str(), program.c_str(), "--probe", probe.name, nullptr);
      ::_exit(programs::kExitFailed);
    }
    ::close(out[1]);
    ::close(error[1]);
    ends_ = {{{out[0], POLLIN, 0}, {error[0], POLLIN, 0}}};
  }
  ~ProbeProcess() {
    for (const pollfd& end : ends_) {
      if (end.fd >= 0) ::close(end.fd);
    }
  }
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  /// Reads until nobody writes any more; false: somebody still may at the deadline.
  bool read_to_the_end(Clock::time_point deadline) {
    while (ends_[0].fd >= 0 || ends_[1].fd >= 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return false;
      if (::poll(ends_.data(), ends_.size(), static_cast<int>(left.count())) <= 0) continue;
      for (std::size_t i = 0; i < ends_.size(); ++i) {
        if (ends_[i].fd >= 0 && ends_[i].revents != 0) read_some(i);
      }
    }
    return true;
  }

  void kill() const { ::kill(pid_, SIGKILL); }

  /// Nothing where it has not ended by then: a process that hangs in a driver cannot be killed.
  [[nodiscard]] std::optional<int> wait(Clock::time_point deadline) const {
    for (;;) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) return status;
      if (Clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(kTurn);
    }
  }
  /// A probe that is killed cannot wait for its own workers, which end with it: they are ours then.
  static void wait_for_its_workers(Clock::time_point deadline) {
    for (;;) {
      const pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
      if (ended < 0 || Clock::now() >= deadline) return;
      if (ended == 0) std::this_thread::sleep_for(kTurn);
    }
  }

  [[nodiscard]] const std::string& out() const { return texts_[0]; }
  [[nodiscard]] const std::string& errors() const { return texts_[1]; }

 private:
  void read_some(std::size_t i) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(ends_[i].fd, bytes.data(), bytes.size());
    if (count > 0) {
      texts_[i].append(bytes.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      ::close(ends_[i].fd);
      ends_[i].fd = -1;
    }
  }

  pid_t pid_ = -1;
  std::array<pollfd, 2> ends_{};
  std::array<std::string, 2> texts_;
};

/// The last line that is not empty: where a program says what ended it.
std::string last_line(std::string text) {
  const auto last = text.find_last_not_of(" \n");
  if (last == std::string::npos) return {};
  text.erase(last + 1);
  return text.substr(text.rfind('\n') + 1);
}

/// The first: what comes behind it is mostly its consequence.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// What there is to say of a probe that has found nothing.
Findings failure(const Probe& probe, End end, std::string what, const ProbeProcess& process) {
  const std::string said = first_line(process.errors());
  if (!said.empty()) what += ": " + said;
  return weighed(probe, end,
                 {{.name = probe.finding,
                   .status = Status::FAILURE,
                   .text = std::move(what),
                   .advice = fmt::format("{}; crossdevice-doctor --probe {} shows it alone",
                                         probe.advice, probe.name)}});
}

}  // namespace

Findings run_in_process(const Probe& probe, std::chrono::duration<double> timeout) {
  ProbeProcess process(probe);
  const auto limit = std::chrono::duration_cast<Clock::duration>(timeout);
  const bool has_ended = process.read_to_the_end(Clock::now() + limit);
  if (!has_ended) process.kill();
  const Clock::time_point deadline = Clock::now() + kWait;
  const std::optional<int> status = process.wait(deadline);
  if (!has_ended) ProbeProcess::wait_for_its_workers(deadline);
  if (!has_ended || !status.has_value()) {
    return failure(probe, End::CRASH,
                   fmt::format("has not ended after {:g} s, and was stopped (--timeout-seconds "
                               "gives it more time where the machine is busy)",
                               timeout.count()),
                   process);
  }
  if (WIFSIGNALED(*status)) {
    return failure(probe, End::CRASH,
                   fmt::format("was ended by signal {} ({})", WTERMSIG(*status),
                               ::sigabbrev_np(WTERMSIG(*status))),
                   process);
  }
  if (WEXITSTATUS(*status) != programs::kExitOk) {
    const End end = WEXITSTATUS(*status) == kExitRefused ? End::REFUSAL : End::ERROR;
    return failure(probe, end, fmt::format("ended with status {}", WEXITSTATUS(*status)), process);
  }
  try {
    return weighed(probe, End::REPORT, findings_from_json(last_line(process.out())));
  } catch (const std::runtime_error& error) {
    return failure(probe, End::CRASH, fmt::format("gave no report ({})", error.what()), process);
  }
}

int serve_probe(const Probe& probe) {
  // A timeline that is asked for is the program's, and not to be replaced by the probe's. The variable stays: the probe of the environment shows it.
  detail::trace_state = 0;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Finding& finding : probe.run()) array.push_back(to_json(finding));
  using Handler = nlohmann::ordered_json::error_handler_t;  // file names need not be UTF-8
  fmt::print("{}\n", array.dump(-1, ' ', false, Handler::replace));
  return programs::kExitOk;
}

}  // namespace crossdevice::doctor
