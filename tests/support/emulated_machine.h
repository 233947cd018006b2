// SPDX-License-Identifier: Apache-2.0
/// What the emulated tables share: one lock, one way to wait, one list of what was done wrong.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace crossdevice::testing {

/// Threads  lock() guards everything that the emulation knows; device memory itself is touched without it. Functions that take a Lock need it held.
class EmulatedMachine {
 public:
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  /// Something changed that somebody may wait for.
  void notify() { changed_.notify_all(); }

  /// Until ready(), or the emulation stops. Whether it was ready.
  template <class Ready>
  bool await(Lock& lock, const Ready& ready) {
    changed_.wait(lock, [&] { return is_stopping_ || ready(); });
    return ready();
  }
  /// The same; release_everything() ends it too.
  template <class Ready>
  bool await_or_release(Lock& lock, const Ready& ready) {
    const std::uint64_t releases = num_releases_;
    return await(lock, [&] { return num_releases_ != releases || ready(); }) && ready();
  }
  /// The same, with a limit.
  template <class Ready, class Duration>
  bool await_for(Lock& lock, const Duration& duration, const Ready& ready) {
    changed_.wait_for(lock, duration, [&] { return is_stopping_ || ready(); });
    return ready();
  }

  /// Ends every wait that only a fault, a missing rank or a blocked stream keeps up.
  void release_everything(Lock& lock);
  [[nodiscard]] std::uint64_t num_releases(Lock& /*lock*/) const { return num_releases_; }
  void stop(Lock& lock);
  [[nodiscard]] bool is_stopping(Lock& /*lock*/) const { return is_stopping_; }

  /// A rule of CUDA's or NCCL's was broken: kept, and written to stderr.
  void report(Lock& lock, std::string violation);
  [[nodiscard]] std::vector<std::string> violations();
  void clear_violations();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::uint64_t num_releases_ = 0;
  std::vector<std::string> violations_;
};

/// While one lives, this thread runs a function that must not call CUDA.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
  [[nodiscard]] static bool is_inside();
};

}  // namespace crossdevice::testing
