// SPDX-License-Identifier: Apache-2.0
// Messages: one sink for the process, called by one thread at a time.
#include "crossdevice/core/log.h"

#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <pthread.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"

namespace crossdevice {
namespace {

using Keys = std::set<std::string, std::less<>>;

struct LogState {
  std::mutex sink_mutex;                // guards `sink` and is held while it runs
  std::shared_ptr<const LogSink> sink;  // null: write_line
  std::mutex keys_mutex;                // guards `keys`
  std::optional<Keys> keys;             // seen by log_once; nothing: none yet
};

/// Never destroyed, because messages may come while the process ends; and there from the start, because a child of fork()
/// could wait for ever for a thread that was still making it.
union LogStorage {
  constexpr LogStorage() : state() {}
  ~LogStorage() {}  // NOLINT(modernize-use-equals-default): that one would be deleted
  LogStorage(const LogStorage&) = delete;
  LogStorage& operator=(const LogStorage&) = delete;
  LogState state;
};
constinit LogStorage storage;

LogState& state() { return storage.state; }

/// Where this thread is; unless OUTSIDE, it holds the sink's mutex.
enum class Nesting : std::uint8_t { OUTSIDE, RUNS_SINK, WRITES_LINE };
thread_local Nesting nesting = Nesting::OUTSIDE;

class NestingScope {
 public:
  explicit NestingScope(Nesting inner) : outer_(nesting) { nesting = inner; }
  ~NestingScope() { nesting = outer_; }
  NestingScope(const NestingScope&) = delete;
  NestingScope& operator=(const NestingScope&) = delete;

 private:
  Nesting outer_;
};

// A lock that another thread holds while this one forks is held for ever in the child, and what it guards may be half
// changed. So fork() takes the locks; the child goes without what belongs to those it could not have. It only tries: their
// holder may wait (a sink, for a lock of the program's) for the very thread that forks.

/// What the thread that forks took, from the moment before until the moments after.
struct TakenLocks {
  bool sink = false;
  bool keys = false;
};
thread_local TakenLocks taken_for_fork;
// Change in the handler of a child only, which has one thread then.
bool is_sink_lost = false;
bool are_keys_lost = false;

void unlock_taken() {
  if (taken_for_fork.keys) state().keys_mutex.unlock();
  if (taken_for_fork.sink) state().sink_mutex.unlock();
}

void before_fork() {
  // A sink that forks holds the lock already, and still does in the child.
  taken_for_fork.sink =
      nesting == Nesting::OUTSIDE && !is_sink_lost && state().sink_mutex.try_lock();
  taken_for_fork.keys = !are_keys_lost && state().keys_mutex.try_lock();
}

void after_fork_in_child() {
  is_sink_lost = nesting == Nesting::OUTSIDE && !taken_for_fork.sink;
  are_keys_lost = !taken_for_fork.keys;
  unlock_taken();
}

[[maybe_unused]] const bool kHandlersAreInstalled =
    pthread_atfork(&before_fork, &unlock_taken, &after_fork_in_child) == 0;

std::string line_of(LogSeverity severity, std::string_view message) {
  std::string line = "crossdevice: ";
  line += to_string(severity);
  line += ": ";
  line += message;
  line += '\n';
  return line;
}

void write_line(LogSeverity severity, std::string_view message) {
  const std::string line = line_of(severity, message);
  // Unformatted and in one piece: the stream's flags stay unused, and lines of other writers do not
  // split it.
  std::clog.write(line.data(), static_cast<std::streamsize>(line.size())).flush();
}

bool is_admitted(LogSeverity severity) {
  std::optional<LogSeverity> level = Environment{}.log_level;
  try {
    level = environment().log_level;
  } catch (...) {
    // Whoever asks for the environment itself gets the error; a message must not be lost to it.
  }
  return level.has_value() && severity >= *level;
}

/// Gives the message to the sink, or, when this thread is inside the sink already, to std::clog.
void deliver(LogSeverity severity, std::string_view message) {
  if (is_sink_lost) {
    // Past std::clog too, whose buffer may have lost a lock of its own.
    const std::string line = line_of(severity, message);
    (void)!write(STDERR_FILENO, line.data(), line.size());
    return;
  }
  if (nesting == Nesting::WRITES_LINE)
    return;  // std::clog's own buffer logs: there is nowhere left to write
  if (nesting == Nesting::RUNS_SINK) {
    const NestingScope scope(Nesting::WRITES_LINE);
    write_line(severity, message);
    return;
  }
  // Declared before the lock: a sink that replaces itself dies with this pointer, after the lock,
  // and may log.
  std::shared_ptr<const LogSink> sink;
  const std::lock_guard lock(state().sink_mutex);
  sink = state().sink;
  const NestingScope scope(sink != nullptr ? Nesting::RUNS_SINK : Nesting::WRITES_LINE);
  if (sink != nullptr) {
    (*sink)(severity, message);
  } else {
    write_line(severity, message);
  }
}

}  // namespace

std::string_view to_string(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::INFO:
      return "info";
    case LogSeverity::WARNING:
      return "warning";
    case LogSeverity::FAILURE:
      return "failure";
  }
  return "invalid severity";
}

void set_log_sink(LogSink sink) {
  if (is_sink_lost) return;
  std::shared_ptr<const LogSink> held;
  if (sink) held = std::make_shared<const LogSink>(std::move(sink));
  // The replaced sink ends up in `held` and dies after the lock, because its destruction may log.
  std::unique_lock lock(state().sink_mutex, std::defer_lock);
  if (nesting == Nesting::OUTSIDE) lock.lock();
  held.swap(state().sink);
}

void log(LogSeverity severity, std::string_view message) noexcept {
  try {
    if (is_admitted(severity)) deliver(severity, message);
  } catch (...) {
    // A message that cannot be written must not end the operation that it is about.
  }
}

void log_once(std::string_view key, LogSeverity severity, std::string_view message) noexcept {
  try {
    if (!are_keys_lost) {
      const std::lock_guard lock(state().keys_mutex);
      if (!state().keys) state().keys.emplace();
      if (!state().keys->emplace(key).second) return;
    }
  } catch (...) {
    // Without memory for the key, writing twice is better than not at all.
  }
  log(severity, message);
}

}  // namespace crossdevice
