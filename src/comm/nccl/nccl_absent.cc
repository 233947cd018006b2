// SPDX-License-Identifier: Apache-2.0
// In the place of NCCL, in a build without it.
#if !defined(CROSSDEVICE_WITH_NCCL)

#include "comm/detail/nccl_loader.h"

namespace crossdevice::detail {

NcclLibrary load_nccl(const NcclPlaces&) {
  return {.api = nullptr, .reason_against = "this library was built without NCCL"};
}

}  // namespace crossdevice::detail

#endif
