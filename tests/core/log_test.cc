// SPDX-License-Identifier: Apache-2.0
// Messages reach the sink that is in force, one at a time, and neither throw nor deadlock whatever the sink does.
#include "crossdevice/core/log.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossdevice {
namespace {

using ::testing::ElementsAre;

/// Takes what is written to std::clog while it lives.
class ClogCapture {
 public:
  explicit ClogCapture(std::streambuf* buffer = nullptr)
      : before_(std::clog.rdbuf(buffer != nullptr ? buffer : text_.rdbuf())) {}
  ~ClogCapture() { std::clog.rdbuf(before_); }
  ClogCapture(const ClogCapture&) = delete;
  ClogCapture& operator=(const ClogCapture&) = delete;
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

class LogTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { unsetenv("CROSSDEVICE_LOG_LEVEL"); }
  void TearDown() override { set_log_sink({}); }
};

TEST_F(LogTest, SeveritiesHaveTheNamesOfTheLevels) {
  EXPECT_EQ(to_string(LogSeverity::INFO), "info");
  EXPECT_EQ(to_string(LogSeverity::WARNING), "warning");
  EXPECT_EQ(to_string(LogSeverity::FAILURE), "failure");
}

TEST_F(LogTest, TheDefaultSinkWritesALineToClogFromWarningsOn) {
  const ClogCapture capture;
  log(LogSeverity::INFO, "not this");
  log(LogSeverity::WARNING, "no NCCL here");
  log(LogSeverity::FAILURE, "rank 3 is gone");
  EXPECT_EQ(capture.text(),
            "crossdevice: warning: no NCCL here\ncrossdevice: failure: rank 3 is gone\n");
}

TEST_F(LogTest, TheDefaultSinkIgnoresAndKeepsTheFormatOfClog) {
  const ClogCapture capture;
  std::clog.width(60);
  log(LogSeverity::WARNING, "text");
  EXPECT_EQ(std::clog.width(), 60);
  std::clog.width(0);
  EXPECT_EQ(capture.text(), "crossdevice: warning: text\n");
}

TEST_F(LogTest, AnotherSinkGetsTheMessagesInsteadOfClog) {
  const ClogCapture capture;
  std::vector<std::string> seen;
  set_log_sink([&](LogSeverity severity, std::string_view message) {
    seen.push_back(std::string(to_string(severity)) + "/" + std::string(message));
  });
  log(LogSeverity::INFO, "below the level");
  log(LogSeverity::WARNING, "one");
  log(LogSeverity::FAILURE, "two");
  EXPECT_THAT(seen, ElementsAre("warning/one", "failure/two"));
  EXPECT_EQ(capture.text(), "");
}

TEST_F(LogTest, AnEmptySinkRestoresTheDefault) {
  const ClogCapture capture;
  set_log_sink([](LogSeverity, std::string_view) { FAIL() << "this sink has been replaced"; });
  set_log_sink({});
  log(LogSeverity::WARNING, "text");
  EXPECT_EQ(capture.text(), "crossdevice: warning: text\n");
}

TEST_F(LogTest, WhatASinkThrowsIsDroppedAndTheNextMessageArrives) {
  static_assert(noexcept(log(LogSeverity::WARNING, "")));
  static_assert(noexcept(log_once("", LogSeverity::WARNING, "")));
  int calls = 0;
  set_log_sink([&](LogSeverity, std::string_view) {
    ++calls;
    throw std::runtime_error("the disk is full");
  });
  log(LogSeverity::WARNING, "one");
  log(LogSeverity::WARNING, "two");
  EXPECT_EQ(calls, 2);
}

TEST_F(LogTest, WhatASinkLogsGoesToClog) {
  const ClogCapture capture;
  std::vector<std::string> seen;
  set_log_sink([&](LogSeverity, std::string_view message) {
    seen.emplace_back(message);
    log(LogSeverity::WARNING, "from the sink");
  });
  log(LogSeverity::WARNING, "one");
  log(LogSeverity::WARNING, "two");
  EXPECT_THAT(seen, ElementsAre("one", "two"));
  EXPECT_EQ(capture.text(),
            "crossdevice: warning: from the sink\ncrossdevice: warning: from the sink\n");
}

TEST_F(LogTest, ASinkMayReplaceItselfAndLogWhenItIsDestroyed) {
  struct LogsAtItsEnd {
    LogsAtItsEnd() = default;
    LogsAtItsEnd(const LogsAtItsEnd&) = delete;
    LogsAtItsEnd& operator=(const LogsAtItsEnd&) = delete;
    ~LogsAtItsEnd() { log(LogSeverity::WARNING, "the first sink is gone"); }
  };
  std::vector<std::string> seen;
  set_log_sink([&seen, end = std::make_shared<LogsAtItsEnd>()](LogSeverity, std::string_view) {
    std::vector<std::string>& into = seen;
    set_log_sink([&into](LogSeverity, std::string_view message) { into.emplace_back(message); });
  });
  log(LogSeverity::WARNING, "the first sink replaces itself");
  log(LogSeverity::WARNING, "hello");
  EXPECT_THAT(seen, ElementsAre("the first sink is gone", "hello"));
}

TEST_F(LogTest, AReplacedSinkMayLogWhenItIsDestroyed) {
  struct LogsAtItsEnd {
    LogsAtItsEnd() = default;
    LogsAtItsEnd(const LogsAtItsEnd&) = delete;
    LogsAtItsEnd& operator=(const LogsAtItsEnd&) = delete;
    ~LogsAtItsEnd() { log(LogSeverity::WARNING, "gone"); }
  };
  set_log_sink([end = std::make_shared<LogsAtItsEnd>()](LogSeverity, std::string_view) {});
  std::vector<std::string> seen;
  set_log_sink([&](LogSeverity, std::string_view message) { seen.emplace_back(message); });
  EXPECT_THAT(seen, ElementsAre("gone"));
}

TEST_F(LogTest, AClogThatLogsWhileItIsWrittenDoesNotRecurse) {
  struct LoggingBuffer : std::stringbuf {
    std::streamsize xsputn(const char* text, std::streamsize size) override {
      log(LogSeverity::WARNING, "writing");
      return std::stringbuf::xsputn(text, size);
    }
  } buffer;
  {
    const ClogCapture capture(&buffer);
    log(LogSeverity::WARNING, "text");
  }
  EXPECT_EQ(buffer.str(), "crossdevice: warning: text\n");
}

TEST_F(LogTest, ThreadsEnterTheSinkOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 500;
  int calls = 0;  // not atomic: only the sink's own order protects it
  set_log_sink([&](LogSeverity, std::string_view) { ++calls; });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kMessages; ++i) log(LogSeverity::WARNING, "text");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, kThreads * kMessages);
}

TEST_F(LogTest, AReplacedSinkNoLongerRunsOnAnyThread) {
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::atomic<bool> called_after_its_end = false;
  set_log_sink([](LogSeverity, std::string_view) {});
  std::thread thread([&] {
    while (!stop) {
      log(LogSeverity::WARNING, "text");
      std::this_thread::yield();  // the mutex is not fair: let the other thread have it
    }
  });
  for (int round = 0; round < 20; ++round) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    std::atomic<bool>* const flag = alive.get();
    const int before = calls;
    set_log_sink([&, flag](LogSeverity, std::string_view) {
      if (!*flag) called_after_its_end = true;
      ++calls;
    });
    while (calls == before) std::this_thread::yield();
    set_log_sink([](LogSeverity, std::string_view) {});
    *flag = false;
  }  // each flag dies here: the address sanitizer sees a call that comes too late
  stop = true;
  thread.join();
  EXPECT_FALSE(called_after_its_end);
}

TEST_F(LogTest, LogOnceWritesTheFirstMessageOfEachKey) {
  std::vector<std::string> seen;
  set_log_sink([&](LogSeverity, std::string_view message) { seen.emplace_back(message); });
  log_once("first key", LogSeverity::WARNING, "a");
  log_once("first key", LogSeverity::WARNING, "b");
  log_once("second key", LogSeverity::FAILURE, "c");
  log_once("first key", LogSeverity::FAILURE, "d");
  EXPECT_THAT(seen, ElementsAre("a", "c"));
}

TEST_F(LogTest, LogOnceWritesOnceWhenThreadsRace) {
  std::atomic<int> calls = 0;
  set_log_sink([&](LogSeverity, std::string_view) { ++calls; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int key = 0; key < 100; ++key) {
        log_once("raced " + std::to_string(key), LogSeverity::WARNING, "text");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 100);
}

/// What a child of fork() writes to standard error while it runs `body`; "hangs" when that does not end.
std::string written_in_child(const std::function<void()>& body) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? text : "hangs";
}

TEST_F(LogTest, AChildOfForkHasItsParentsSink) {
  set_log_sink([](LogSeverity, std::string_view message) {
    const std::string line = "sink: " + std::string(message) + "\n";
    EXPECT_EQ(write(STDERR_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  });
  EXPECT_EQ(written_in_child([] { log(LogSeverity::WARNING, "from the child"); }),
            "sink: from the child\n");
}

TEST_F(LogTest, AChildOfForkDoesNotWaitForASinkThatRanOnAnotherThread) {
  std::atomic<bool> runs{false};
  std::atomic<bool> may_end{false};
  set_log_sink([&](LogSeverity, std::string_view) {
    runs.store(true);
    runs.notify_all();
    may_end.wait(false);
  });
  std::thread other([] { log(LogSeverity::WARNING, "from the parent"); });
  runs.wait(false);
  EXPECT_EQ(written_in_child([] {
              log(LogSeverity::WARNING, "from the child");
              set_log_sink({});
              log_once("AChildOfForkDoesNotWait", LogSeverity::FAILURE, "once");
              log_once("AChildOfForkDoesNotWait", LogSeverity::FAILURE, "once");
            }),
            "crossdevice: warning: from the child\ncrossdevice: failure: once\n");
  may_end.store(true);
  may_end.notify_all();
  other.join();
}

TEST_F(LogTest, ASinkMayFork) {
  std::string text;
  set_log_sink([&text](LogSeverity, std::string_view) {
    text = written_in_child([] {
      set_log_sink({});
      log(LogSeverity::WARNING, "from the child");
    });
  });
  log(LogSeverity::WARNING, "fork");
  EXPECT_EQ(text, "crossdevice: warning: from the child\n");
}

// The level is read once per process, so each of these runs in a fresh one.
class LogLevelDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  [[noreturn]] static void log_all_with_level(const char* level) {
    setenv("CROSSDEVICE_LOG_LEVEL", level, 1);
    log(LogSeverity::INFO, "1");
    log(LogSeverity::WARNING, "2");
    log(LogSeverity::FAILURE, "3");
    std::cerr << "end";
    std::exit(0);
  }
};

TEST_F(LogLevelDeathTest, InfoAdmitsEverything) {
  EXPECT_EXIT(log_all_with_level("info"), ::testing::ExitedWithCode(0),
              "^crossdevice: info: 1\ncrossdevice: warning: 2\ncrossdevice: failure: 3\nend$");
}

TEST_F(LogLevelDeathTest, FailureAdmitsFailuresOnly) {
  EXPECT_EXIT(log_all_with_level("failure"), ::testing::ExitedWithCode(0),
              "^crossdevice: failure: 3\nend$");
}

TEST_F(LogLevelDeathTest, NoneAdmitsNothing) {
  EXPECT_EXIT(log_all_with_level("none"), ::testing::ExitedWithCode(0), "^end$");
}

TEST_F(LogLevelDeathTest, ALevelThatCannotBeReadCountsAsWarning) {
  EXPECT_EXIT(log_all_with_level("loud"), ::testing::ExitedWithCode(0),
              "^crossdevice: warning: 2\ncrossdevice: failure: 3\nend$");
}

TEST_F(LogLevelDeathTest, MessagesAfterTheEndOfMainAreStillWritten) {
  EXPECT_EXIT(
      {
        unsetenv("CROSSDEVICE_LOG_LEVEL");
        std::atexit([] { log(LogSeverity::WARNING, "from an exit handler"); });
        log(LogSeverity::WARNING, "from main");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "^crossdevice: warning: from main\ncrossdevice: warning: from an exit handler\n$");
}

}  // namespace
}  // namespace crossdevice
