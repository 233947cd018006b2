// SPDX-License-Identifier: Apache-2.0
/// What was called of the emulated tables, and what is to go wrong there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/emulated_machine.h"

namespace crossdevice::testing {

/// `function` is "cuda.memcpy_async", "kernels.reduce", "nccl.all_reduce", ...; `device` of the stream, the communicator, or the current one.
struct EmulatedCall {
  std::string_view function;
  int device = -1;
  const void* stream = nullptr;
  std::thread::id thread;
  std::size_t size_bytes = 0;
};

enum class FaultKind : std::uint8_t {
  DELAY_CALL,       ///< the caller sleeps first
  FAIL_CALL,        ///< returns `status`, does nothing
  HANG_CALL,        ///< the caller blocks until release_hangs()
  DELAY_OPERATION,  ///< the call succeeds; what it enqueued takes longer
  FAIL_OPERATION,   ///< what it enqueued fails with `status`, which the device keeps
  HANG_OPERATION,   ///< what it enqueued never ends, until release_stream() or release_everything()
};

struct Fault {
  std::string function;
  FaultKind kind = FaultKind::FAIL_CALL;
  std::size_t skip = 0;  ///< so many calls pass unharmed
  std::size_t count = 1;
  int status = 999;
  std::chrono::milliseconds delay{10};
  int device = -1;  ///< only calls for this one; -1: any
};

/// Threads  any.
class EmulatedCalls {
 public:
  explicit EmulatedCalls(EmulatedMachine& machine) : machine_(machine) { calls_.reserve(4096); }

  /// In order. Queries (event_query, get_device, ...) are counted, but listed only after list_queries().
  [[nodiscard]] std::vector<EmulatedCall> list() const;
  /// The names alone.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::size_t count(std::string_view function) const;
  /// Of every function that was called since clear(), queries too.
  [[nodiscard]] std::map<std::string, std::size_t, std::less<>> counts() const;
  void clear();
  void list_queries();
  /// Until `function` has been called so often since clear(); false when the limit passes.
  [[nodiscard]] bool await_count(std::string_view function, std::size_t count,
                                 std::chrono::milliseconds limit);

  void inject(Fault fault);
  void clear_faults();
  /// Callers that a fault holds go on.
  void release_hangs();

  struct Outcome {
    std::optional<int> status;       ///< what the call is to return at once
    std::optional<Fault> operation;  ///< what is to befall what it enqueues
  };
  /// For the tables: notes the call, then lets the faults have their way.
  Outcome begin(EmulatedMachine::Lock& lock, const EmulatedCall& call, bool is_query);

 private:
  EmulatedMachine& machine_;
  std::vector<EmulatedCall> calls_;
  std::map<std::string, std::size_t, std::less<>> counts_;
  std::vector<Fault> faults_;
  std::uint64_t num_hang_releases_ = 0;
  bool lists_queries_ = false;
};

}  // namespace crossdevice::testing
