// SPDX-License-Identifier: Apache-2.0
// The streams of asynchronous operations.
#include "crossdevice/device/progress.h"

#include <memory>
#include <mutex>
#include <vector>

#include "crossdevice/device/shutdown.h"

namespace crossdevice {
namespace {

constexpr const char* kThreadName = "xdev-progress";

Stream& make_progress_stream() {
  // Never destroyed: operations may be launched until the process ends. shutdown() joins its thread.
  static Stream& stream = *new Stream(Device("CPU:0"), kThreadName);
  detail::stop_at_shutdown([] { stream.stop(); });
  return stream;
}

/// Those that are leased, and those that are not. Never destroyed.
class LeasedStreams {
 public:
  static LeasedStreams& get() {
    static LeasedStreams& one = make();
    return one;
  }

  Stream& take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) {
      spare_.reserve(all_.size() + 1);  // so that give_back() never allocates
      all_.push_back(std::make_unique<Stream>(Device("CPU:0"), kThreadName));
      if (is_stopped_) all_.back()->stop();
      return *all_.back();
    }
    Stream& stream = *spare_.back();
    spare_.pop_back();
    return stream;
  }
  void give_back(Stream& stream) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(&stream);
  }
  void stop() {
    std::vector<Stream*> streams;
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
      for (const std::unique_ptr<Stream>& each : all_) streams.push_back(each.get());
    }
    for (Stream* const each : streams) each->stop();
  }

 private:
  static LeasedStreams& make() {
    static LeasedStreams& one = *new LeasedStreams;
    detail::stop_at_shutdown([] { one.stop(); });
    return one;
  }

  std::mutex
      mutex_;  // guards the following; not held while a stream ends, whose last task may give it back
  std::vector<std::unique_ptr<Stream>> all_;
  std::vector<Stream*> spare_;
  bool is_stopped_ = false;
};

}  // namespace

Stream& progress_stream() {
  static Stream& stream = make_progress_stream();
  return stream;
}

detail::ProgressLease::ProgressLease() : stream_(LeasedStreams::get().take()) {}

detail::ProgressLease::~ProgressLease() {
  if (!is_forked_child()) LeasedStreams::get().give_back(stream_);
}

bool& detail::carries_out_operations() {
  // Read by every blocking call: at a fixed distance from the thread's own block, without a call.
  [[gnu::tls_model("initial-exec")]] constinit thread_local bool value = false;
  return value;
}

}  // namespace crossdevice
