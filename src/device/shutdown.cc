// SPDX-License-Identifier: Apache-2.0
// Ends the library's own threads.
#include "crossdevice/device/shutdown.h"

#include <mutex>
#include <vector>

namespace crossdevice {
namespace {

// Never destroyed: shutdown() may be called while the process ends.
struct ShutdownList {
  std::mutex
      mutex;  // guards both; not held while a stop function runs, because that takes locks of its own
  std::vector<void (*)()> stops;
  bool is_shut_down = false;
};

ShutdownList& shutdown_list() {
  static ShutdownList& instance = *new ShutdownList;
  return instance;
}

}  // namespace

void shutdown() {
  if (detail::is_forked_child()) return;  // no thread came along, and the lock may be held for ever
  std::vector<void (*)()> stops;
  {
    ShutdownList& list = shutdown_list();
    const std::scoped_lock lock(list.mutex);
    list.is_shut_down = true;
    stops = list.stops;
  }
  for (auto stop = stops.rbegin(); stop != stops.rend(); ++stop) (*stop)();
}

void detail::stop_at_shutdown(void (*stop)()) {
  require_not_forked();
  {
    ShutdownList& list = shutdown_list();
    const std::scoped_lock lock(list.mutex);
    list.stops.push_back(stop);
    if (!list.is_shut_down) return;
  }
  stop();
}

}  // namespace crossdevice
