// SPDX-License-Identifier: Apache-2.0
/// A program that starts workers, as a test starts, watches and interrupts it.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossdevice::run {

/// Workers' lines come in any order.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// The job's output and end. This process adopts whatever the job leaves behind, so that wait_for_everybody() sees it.
class RunningJob {
 public:
  explicit RunningJob(std::vector<std::string> arguments,
                      const std::string& program = CROSSDEVICE_RUN_PROGRAM) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    arguments.insert(arguments.begin(), program);
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::array<int, 2> out_ends{};
    std::array<int, 2> err_ends{};
    EXPECT_EQ(::pipe2(out_ends.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(err_ends.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      ::dup2(out_ends[1], 1);
      ::dup2(err_ends[1], 2);
      ::execv(pointers[0], pointers.data());
      ::_exit(99);
    }
    ::close(out_ends[1]);
    ::close(err_ends[1]);
    pipes_ = {out_ends[0], err_ends[0]};
  }
  ~RunningJob() {
    close_output();
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait_for_everybody();
    }
  }
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Its children without the janitor, which is the first.
  [[nodiscard]] std::vector<pid_t> workers() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> all;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): their number is not known before
    for (pid_t pid = 0; file >> pid;) all.push_back(pid);
    if (!all.empty()) all.erase(all.begin());
    return all;
  }
  void send(int number) const { EXPECT_EQ(::kill(pid_, number), 0); }

  /// Reads until standard output has `text` `times` times; false where it ends before.
  bool read_until(std::string_view text, int times = 1) {
    const auto count = [&] {
      int found = 0;
      for (std::size_t at = out.find(text); at != std::string::npos; at = out.find(text, at + 1)) {
        ++found;
      }
      return found;
    };
    while (count() < times) {
      if (!read_some()) return false;
    }
    return true;
  }

  /// Reads until standard error has `text`; false where it ends before.
  bool read_error_until(std::string_view text) {
    while (err.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }

  /// Reads all output and returns the exit code (128 + signal where the program itself was killed). Nobody may be left then.
  int finish() {
    while (read_some()) {
    }
    return wait();
  }
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    errno = 0;
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    EXPECT_EQ(errno, ECHILD);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// Until the job and everything it has started are gone; the test's time limit is what ends this otherwise.
  void wait_for_everybody() {
    while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
    pid_ = -1;
  }
  /// The first page that nobody reads fills it; call before there is more.
  void shrink_output() const {
    constexpr int kPage = 4096;
    EXPECT_EQ(::fcntl(pipes_[0], F_SETPIPE_SZ, kPage), kPage);
  }
  void close_output() {
    for (int& fd : pipes_) {
      if (fd >= 0) ::close(fd);
      fd = -1;
    }
  }

  std::string out;
  std::string err;

 private:
  /// False when both have ended.
  bool read_some() {
    std::array<pollfd, 2> polled{{{pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}}};
    if (pipes_[0] < 0 && pipes_[1] < 0) return false;
    if (::poll(polled.data(), polled.size(), -1) < 0) return errno == EINTR;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      std::array<char, 65536> bytes{};
      const ssize_t count = ::read(pipes_[i], bytes.data(), bytes.size());
      if (count > 0) {
        (i == 0 ? out : err).append(bytes.data(), static_cast<std::size_t>(count));
      } else {
        ::close(pipes_[i]);
        pipes_[i] = -1;
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  std::array<int, 2> pipes_{-1, -1};
};

}  // namespace crossdevice::run
