// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/nccl_library.h"

#include <utility>

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

const NcclLibrary& nccl_library() {
  if (const NcclLibrary* known = library().find()) return *known;
  require_not_forked();
  return library().get([] { return load_nccl(); });
}

void set_nccl_library(NcclLibrary given) { library().give(std::move(given)); }

}  // namespace crossdevice::detail
