// SPDX-License-Identifier: Apache-2.0
/// Loads the real NCCL. In a build without nccl.h this says so.
#pragma once

#include <string>
#include <vector>

#include "crossdevice/comm/nccl_library.h"

namespace crossdevice::detail {

/// Where to look for NCCL.
struct NcclPlaces {
  std::string file{};  ///< counts alone where it is set
  bool in_process = true;
  bool on_loader_path = true;
  std::vector<std::string> folders{};  ///< in their order, after the loader's path
};

/// What nccl_library() looks through.
[[nodiscard]] NcclPlaces nccl_places();

/// The first that is there counts; one that cannot be used is the reason against NCCL, not passed over: the process would hold two.
///
/// Errors   ResourceExhaustedError: the process lacks descriptors or memory to look for it.
[[nodiscard]] NcclLibrary load_nccl(const NcclPlaces& places);
[[nodiscard]] inline NcclLibrary load_nccl() { return load_nccl(nccl_places()); }

/// "2.28.9", from 22809 (or 2804: before 2.9 there was a digit less).
[[nodiscard]] std::string nccl_version_text(NcclVersion version);

}  // namespace crossdevice::detail
