// SPDX-License-Identifier: Apache-2.0
/// Cases of one test that each need a process to themselves: what a process finds out or makes once is then made anew in each.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossdevice::testing {

/// Children of fork() of a process that has not used the library, and has no threads. What fails in one is printed by it, and fails the test here, with the
/// case's name.
///
/// Threads  one.
class ForkedCases {
 public:
  /// So many at once, each for so long.
  explicit ForkedCases(std::size_t num_at_once = 1, unsigned limit_seconds = 60)
      : num_at_once_(num_at_once), limit_seconds_(limit_seconds) {}
  ~ForkedCases() { await_all(); }
  ForkedCases(const ForkedCases&) = delete;
  ForkedCases& operator=(const ForkedCases&) = delete;

  /// Returns while `body` runs, with EXPECT_* and the like. Where that many run already, one of them ends first.
  void run(const std::string& name, const std::function<void()>& body) {
    while (names_.size() >= num_at_once_) await_one();
    (void)std::fflush(nullptr);
    const ::pid_t child = ::fork();
    if (child == 0) end_with(name, body);
    ASSERT_GT(child, 0) << "fork() failed";
    names_[child] = name;
  }
  void await_all() {
    while (!names_.empty()) await_one();
  }

 private:
  [[noreturn]] void end_with(const std::string& name, const std::function<void()>& body) const {
    (void)::alarm(limit_seconds_);
    const auto num_failed = [] {
      const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
      int count = 0;
      for (int i = 0; i < result.total_part_count(); ++i) {
        count += static_cast<int>(result.GetTestPartResult(i).failed());
      }
      return count;
    };
    const int num_before = num_failed();
    {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
      try {
        body();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "threw " << error.what();
      }
    }
    (void)std::fflush(nullptr);
    ::_exit(num_failed() == num_before ? 0 : 1);  // without what main's end would do for the parent
  }
  void await_one() {
    int status = 0;
    const ::pid_t child = ::waitpid(-1, &status, 0);
    if (child < 0 && errno == EINTR) return;
    if (child < 0) {
      for (const auto& [pid, name] : names_) ADD_FAILURE() << name << ": the child is lost";
      return names_.clear();
    }
    const auto found = names_.find(child);
    if (found == names_.end()) return;  // somebody else's
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << found->second << ": status " << WEXITSTATUS(status) << ", signal "
        << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    names_.erase(found);
  }

  std::size_t num_at_once_;
  unsigned limit_seconds_;
  std::map<::pid_t, std::string> names_;
};

}  // namespace crossdevice::testing
