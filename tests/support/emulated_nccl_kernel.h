// SPDX-License-Identifier: Apache-2.0
/// Private to the emulation of NCCL: communicators, and the kernels in which their ranks meet. All of it is guarded by the machine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/emulated_nccl.h"

namespace crossdevice::testing {

/// The kernels that were launched and have not ended.
struct EmulatedNccl::Running {
  explicit Running(EmulatedMachine& all) : machine(all) {}
  EmulatedMachine& machine;
  bool is_exclusive = true;
  std::map<int, std::deque<Kernel*>> of_device;  ///< in the order of their launches
  std::vector<std::string> mismatches;
};

/// All ranks of a unique id.
struct EmulatedNccl::Clique {
  struct Arrival {
    NcclCall call;
    std::byte* source = nullptr;
    std::byte* destination = nullptr;
    bool has_come = false;
  };
  /// Where the kernels of one number meet.
  struct Meeting {
    std::vector<Arrival> arrivals;  ///< by rank
    std::size_t num_arrived = 0;
    bool is_computing = false;
    bool is_done = false;
    bool is_broken = false;  ///< one has left
  };
  /// One end of a message.
  struct Post {
    std::byte* memory = nullptr;
    std::size_t size_bytes = 0;
    bool is_done = false;
    bool has_left = false;
  };
  struct Lane {
    std::vector<std::shared_ptr<Post>> sends;
    std::vector<std::shared_ptr<Post>> receives;
    std::uint64_t num_sends_launched = 0;
    std::uint64_t num_receives_launched = 0;
    std::map<std::uint64_t, std::shared_ptr<JointClock>> joints;
  };

  std::size_t num_ranks = 0;
  std::vector<Comm*> comms;  ///< by rank; null: has not come
  std::size_t num_come = 0;
  std::size_t num_connected = 0;
  std::size_t num_ended = 0;
  bool has_failed = false;  ///< its making
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings;
  std::map<std::uint64_t, std::shared_ptr<JointClock>> joints;
  std::map<std::pair<int, int>, Lane> lanes;  ///< by sender and receiver
};

struct EmulatedNccl::Comm : std::enable_shared_from_this<Comm> {
  enum class State : std::uint8_t { MAKING, READY, FINALIZED, ENDED };
  std::shared_ptr<Clique> clique;
  int rank = -1;
  int device = -1;
  std::string name;
  State state = State::MAKING;
  bool is_aborted = false;
  bool is_revoked = false;
  bool has_connected = false;
  detail::NcclStatus async_error = detail::NcclStatus::SUCCESS;
  std::string async_text;
  std::uint64_t num_launched = 0;
  std::size_t num_kernels = 0;  ///< that have not ended
  std::size_t num_graphs = 0;   ///< that captured it
  std::thread::id user;         ///< who has calls on it in an open group
  [[nodiscard]] std::size_t num_ranks() const { return clique->num_ranks; }
};

/// One rank's part of one collective, or of the messages of one group.
struct EmulatedNccl::Kernel {
  Kernel(Lock& lock, std::shared_ptr<Running> all, std::shared_ptr<Comm> owner,
         std::vector<NcclCall> what);
  /// Also where it never ran: its device has failed.
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Orders what comes later on the queue after what comes before the kernel on the others'.
  void join(EmulatedStream& queue);
  /// In stream order. Of each call two views: source, destination.
  void run(std::span<std::byte* const> views);

 private:
  [[nodiscard]] bool leaves(Lock& lock) const;
  [[nodiscard]] bool is_its_turn() const;
  void meet(Lock& lock, std::span<std::byte* const> views);
  void exchange(Lock& lock, std::span<std::byte* const> views);
  void end();

  const std::shared_ptr<Running> running_;
  const std::shared_ptr<Comm> comm_;
  const std::vector<NcclCall> calls_;
  std::uint64_t number_ = 0;    ///< among the communicator's collectives
  std::uint64_t releases_ = 0;  ///< when it was launched
  bool has_ended_ = false;
};

/// The bytes that a rank's call reads and writes: of the source, of the destination.
[[nodiscard]] std::pair<std::size_t, std::size_t> bytes_of(const NcclCall& call, int rank,
                                                           std::size_t num_ranks);

}  // namespace crossdevice::testing
