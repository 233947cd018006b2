// SPDX-License-Identifier: Apache-2.0
/// The threads that reduce on hosts: at most the cores, the calling thread included.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "crossdevice/core/export.h"

namespace crossdevice {

namespace detail {
class HostThreadPoolState;

/// A borrowed callable `void(std::size_t chunk)`: two pointers, no allocation.
class ChunkBody {
 public:
  template <class F>
  requires std::is_invocable_v<F&, std::size_t>
  explicit ChunkBody(F& body)
      : object_(std::addressof(body)),
        call_([](void* object, std::size_t chunk) { (*static_cast<F*>(object))(chunk); }) {}
  void operator()(std::size_t chunk) const { call_(object_, chunk); }

 private:
  void* object_;
  void (*call_)(void*, std::size_t);
};
}  // namespace detail

/// Runs the chunks of a job on the calling thread and on the pool's threads.
///
/// Order    chunks begin in order. run() returns when every chunk has finished. The caller works too and could do all of it alone, so a
///          job never waits for a thread that does not come, only for chunks that a thread has begun; and concurrent jobs from
///          several threads cannot block each other. A chunk may run jobs of its own, but not wait for another chunk.
/// Memory   no allocation after the first job.
/// Threads  any number of callers. Idle pool threads spin for a moment (about 50 us), then sleep. A thread that still spins takes
///          chunks at once; sleeping ones are woken only for jobs that last longer than a wake-up takes, which the caller's first
///          chunk tells. So make several chunks per thread, of 10 us to some 100 us each.
/// Cost     a job of one chunk runs inline, without any synchronisation.
class CROSSDEVICE_EXPORT HostThreadPool {
 public:
  /// CROSSDEVICE_NUM_THREADS threads, by default one per core of this process's affinity mask; never destroyed, stopped by shutdown().
  ///
  /// Errors   FailedPreconditionError: the first use, in a child of fork().
  [[nodiscard]] static HostThreadPool& instance();

  /// `num_threads`, at least 1, includes the caller: num_threads - 1 threads are started, when the first job of more than one chunk comes.
  explicit HostThreadPool(std::size_t num_threads);
  ~HostThreadPool();
  HostThreadPool(const HostThreadPool&) = delete;
  HostThreadPool& operator=(const HostThreadPool&) = delete;

  [[nodiscard]] std::size_t num_threads() const;

  /// Calls body(chunk) once for every chunk in [0, num_chunks). `body` must not throw.
  ///
  /// Errors   FailedPreconditionError: more than one chunk in a child of fork().
  template <class F>
  void run(std::size_t num_chunks, F&& body) {
    if (num_chunks == 1) {
      body(std::size_t{0});
      return;
    }
    run_chunks(num_chunks, detail::ChunkBody(body));
  }

  /// Lets a thread that would only wait do something useful: runs one chunk of a job in progress, and returns whether there was one.
  ///
  /// Errors   FailedPreconditionError: in a child of fork(), where the jobs are those of threads that did not come along.
  bool help();

  /// Stops and joins the threads; jobs run on their callers alone from then on. May be repeated, and called while jobs run.
  ///
  /// Errors   FailedPreconditionError: called by one of the threads, from within a chunk.
  void stop();

 private:
  void run_chunks(std::size_t num_chunks, detail::ChunkBody body);
  std::unique_ptr<detail::HostThreadPoolState> state_;
};

}  // namespace crossdevice
