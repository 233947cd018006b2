// SPDX-License-Identifier: Apache-2.0
// Threads with a name and without signals.
#include "crossdevice/core/service_thread.h"

#include <string>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <signal.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

// A thread inherits its maker's mask, so the maker's is narrowed while it makes one: the new thread never runs without it.
class BlockedSignals {
 public:
  BlockedSignals(std::initializer_list<int> also_open) {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&blocked, fault);
    }
    for (const int each : also_open) sigdelset(&blocked, each);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

constexpr std::size_t kLongestName = 15;  // the kernel's limit, without the terminating null

}  // namespace

std::thread start_service_thread(std::string_view name, std::function<void()> body,
                                 std::initializer_list<int> also_open) {
  std::string shown(name.substr(0, kLongestName));
  const BlockedSignals blocked(also_open);
  try {
    return std::thread([shown = std::move(shown), body = std::move(body)] {
      pthread_setname_np(pthread_self(), shown.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    throw ResourceExhaustedError("could not start thread \"" + std::string(name) +
                                 "\": " + error.what());
  }
}

}  // namespace crossdevice::detail
