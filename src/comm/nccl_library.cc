// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/nccl_library.h"

#include <string>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/given_or_found.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/nccl_loader.h"

namespace crossdevice::detail {
namespace {

// Never destroyed: communicators may end after main.
GivenOrFound<NcclLibrary>& library() {
  static auto& instance = *new GivenOrFound<NcclLibrary>("NCCL's functions");
  return instance;
}

}  // namespace

NcclLibrary nccl_library() {
  if (const NcclLibrary* known = library().find()) return *known;
  require_not_forked();
  try {
    return library().get([] { return load_nccl(); });
  } catch (const ResourceExhaustedError& error) {
    return {.reason_against = std::string("NCCL cannot be loaded now: ") + error.what()};
  }
}

void set_nccl_library(NcclLibrary given) { library().give(std::move(given)); }

}  // namespace crossdevice::detail
