// SPDX-License-Identifier: Apache-2.0
/// A process that has as many descriptors open as it may.
#pragma once

namespace crossdevice::fuzz {

/// While it lives, this thread can make and accept no socket: all descriptors that this process may have are said to be in use. A limit would not do: the
/// sanitizers look into memory through a pipe, and take an object that they cannot look at for none. Needs no_descriptors.cc in the target.
class NoDescriptors {
 public:
  NoDescriptors() { are_all_in_use = true; }
  ~NoDescriptors() { are_all_in_use = false; }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  static thread_local bool are_all_in_use;
};

}  // namespace crossdevice::fuzz
