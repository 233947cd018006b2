// SPDX-License-Identifier: Apache-2.0
/// NCCL communicators between a program and the library: lent, and adopted.
///
/// For programs with NCCL's headers (and CUDA's, which those include); this one calls nothing of either. A communicator belongs to the copy of NCCL that
/// made it, so the program and the library must use one copy: the library takes the one that is in the process already, if the program has loaded it
/// before, and nccl_library_path() says which one it is.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nccl.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/device.h"

namespace crossdevice {

/// The file of the copy of NCCL that the library uses, which it has loaded by then: dlopen(path, RTLD_NOLOAD) finds its functions. Empty: the library has none.
///
/// Errors   FailedPreconditionError: in a child of fork() of a process that used the library.
/// Threads  any.
[[nodiscard]] inline std::string nccl_library_path() {
  const std::shared_ptr<detail::NcclApi> api = detail::nccl_library().api;
  return api == nullptr ? std::string() : api->path();
}

/// The library's communicators of some GPUs of this process, one each, in the order of `devices`. Never destroy or abort them.
///
/// Errors   (of the constructor) UnavailableError: why NCCL cannot. DeadlineExceededError: making them took too long. ValueError: no devices, a host device.
/// Threads  any; calls go into a Group, so that they do not cross the library's own.
class LentNcclCommunicators {
 public:
  explicit LentNcclCommunicators(const Devices& devices,
                                 std::optional<double> timeout_seconds = std::nullopt)
      : clique_(detail::NcclClique::of(devices, timeout_seconds)) {}

  [[nodiscard]] int size() const { return clique_->size(); }
  [[nodiscard]] ncclComm_t operator[](int i) const { return clique_->communicator(i); }
  /// Errors   what broke them, once; FailedPreconditionError from then on. They are not to be used any more then, and a new object has new ones.
  void require_usable() const { clique_->require_usable(); }

  /// ncclGroupStart to ncclGroupEnd, in order with the library's own launches on these GPUs.
  ///
  /// Errors   (of the constructor) as require_usable().
  class Group {
   public:
    explicit Group(const LentNcclCommunicators& communicators) : launch_(*communicators.clique_) {
      launch_.assume_calls();
    }
    /// What a call of NCCL's came to: group.require(ncclAllReduce(...), "ncclAllReduce").
    ///
    /// Errors   InternalError, UnavailableError: NCCL's text.
    void require(ncclResult_t result, std::string_view call) {
      launch_.require(static_cast<detail::NcclStatus>(result), call);
    }
    /// Launches. Without it the destructor gives up what was called.
    ///
    /// Errors   as require(); the communicators are broken then.
    void end() { launch_.end(); }

   private:
    detail::NcclClique::Launch launch_;
  };

 private:
  std::shared_ptr<detail::NcclClique> clique_;
};

/// Communicators of the program's, one for each of `devices` and made on it, all ranks of one clique in any order: the library reduces over these devices
/// with them from now on. They stay the program's, which destroys them after end_nccl_adoption(). When the library finds that an operation on them has failed
/// it revokes them where NCCL can (2.28.7), and the program aborts them.
///
/// Errors   ValueError, before anything is done with them: another number of communicators than devices, a null one, one of a clique of another size, one of
///          another GPU than its device, other ranks than all of as many. FailedPreconditionError: the library has some for `devices` already.
///          UnavailableError: the library has no NCCL. What NCCL says of one of them.
inline void adopt_nccl_communicators(const Devices& devices,
                                     std::span<const ncclComm_t> communicators) {
  (void)detail::NcclClique::adopt(devices, {communicators.begin(), communicators.end()});
}

/// The library uses them no longer: what it has built on them says so. Operations that it has enqueued must have come to their end. Where they are broken, waits
/// until NCCL has come back from revoking them, some seconds at most.
///
/// Errors   ValueError: the library has no adopted ones of `devices`. FailedPreconditionError: NCCL has not come back; they must not be freed.
inline void end_nccl_adoption(const Devices& devices) { detail::NcclClique::end_adoption(devices); }

}  // namespace crossdevice
