// SPDX-License-Identifier: Apache-2.0
/// Threads, descriptors and memory of this process: how many there are more than at first, and limits on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace crossdevice::chaos {

class OwnResources {
 public:
  /// What is there now is what should be there at the end. `num_devices`: host devices whose pools may keep their segments.
  explicit OwnResources(std::size_t num_devices);

  /// From now on only so many more descriptors than there are, or bytes of address space.
  void limit_descriptors(std::uint64_t more);
  void limit_memory(std::uint64_t more_bytes);
  /// Files, which shared memory is, may not be larger.
  void limit_files(std::uint64_t bytes);
  void lift_limits();
  [[nodiscard]] bool is_limited() const { return is_limited_; }

  /// Threads besides this one; descriptors that were not there at first and are not the pools'; and the library's files that are mapped, but for the pools' own,
  /// such as memory of other workers. Looks for a while, because threads that have ended
  /// stay visible for a moment.
  [[nodiscard]] std::vector<int> left_over() const;
  [[nodiscard]] std::string left_over_text() const;

 private:
  [[nodiscard]] std::vector<std::string> new_descriptors() const;
  std::vector<std::string> first_descriptors_;
  std::size_t num_devices_;
  rlimit descriptors_{};
  rlimit memory_{};
  rlimit files_{};
  bool is_limited_ = false;
};

/// In this process, now.
[[nodiscard]] std::size_t num_threads();
[[nodiscard]] std::size_t num_descriptors();
/// Those of the first host devices' pools, which keep them for the next use; each has a descriptor and is mapped.
[[nodiscard]] std::size_t num_pool_segments(std::size_t num_devices);
/// What those pools have handed out and not got back.
[[nodiscard]] std::size_t pool_bytes(std::size_t num_devices);
/// Resident memory of this process alone: not of what is shared, as pools are.
[[nodiscard]] std::size_t private_bytes();
[[nodiscard]] std::size_t shared_bytes();
/// Of this process's heap, what is allocated and not freed again; to some KiB, since what a thread keeps for its next allocations counts as allocated.
[[nodiscard]] std::size_t heap_bytes();

}  // namespace crossdevice::chaos
