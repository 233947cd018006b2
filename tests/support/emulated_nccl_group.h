// SPDX-License-Identifier: Apache-2.0
/// Private to the emulation of NCCL: what a thread has called since its group_start().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "support/emulated_nccl.h"

namespace crossdevice::testing {

struct EmulatedNccl::Launch {
  Comm* comm = nullptr;
  std::vector<NcclCall> calls;  ///< one collective, or the messages of one group
  detail::CudaStream stream = nullptr;
  std::optional<Fault> fault;
};

struct EmulatedNccl::Group {
  enum class EndKind : std::uint8_t { FINALIZE, DESTROY, ABORT };
  struct Init {
    Comm* comm = nullptr;
    detail::NcclComm* handle = nullptr;
  };
  struct End {
    Comm* comm = nullptr;
    EndKind kind = EndKind::DESTROY;
  };

  const EmulatedNccl* owner = nullptr;
  int depth = 0;
  std::vector<Init> inits;
  std::vector<Launch> launches;
  std::vector<End> ends;
  detail::NcclStatus error =
      detail::NcclStatus::SUCCESS;  ///< of a call inside, which spoils the group

  detail::NcclStatus keep(detail::NcclStatus status) {
    if (depth > 0 && error == detail::NcclStatus::SUCCESS) error = status;
    return status;
  }
};

}  // namespace crossdevice::testing
