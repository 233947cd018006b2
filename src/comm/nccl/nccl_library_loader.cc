// SPDX-License-Identifier: Apache-2.0
// NCCL is loaded for itself alone (RTLD_LOCAL: its names meet nobody else's) and stays, because its threads do.
#if defined(CROSSDEVICE_WITH_NCCL)

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "comm/detail/nccl_loader.h"
#include "comm/detail/spare_descriptors.h"
#include "comm/nccl/nccl_functions.h"
#include "comm/nccl/real_nccl.h"

namespace crossdevice::detail {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kNames[] = {kSoname, "libnccl.so"};
constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

/// glibc that lacks a descriptor for its list of libraries does without that list from then on, and never finds what only the list has.
///
/// Errors   ResourceExhaustedError.
void require_descriptors() {
  constexpr std::size_t kNeeded = 4;
  const SpareDescriptors spare = spare_descriptors(kNeeded);
  if (spare.count == kNeeded) return;
  throw ResourceExhaustedError("no descriptors to look for it with: " +
                               std::generic_category().message(spare.error));
}

/// The loader gives its reasons as text alone, which ends with the system's words for errno.
bool speaks_of_want(const std::string& reason) {
  for (const int code : {EMFILE, ENFILE, ENOMEM}) {
    if (reason.find(std::generic_category().message(code)) != std::string::npos) return true;
  }
  return false;
}

/// Null, and why, where it is not there or cannot be loaded.
///
/// Errors   ResourceExhaustedError: for want of descriptors or memory, and so it may well be there.
void* open_library(const std::string& path, int mode, std::string& why_not) {
  if (void* const handle = ::dlopen(path.c_str(), mode)) return handle;
  const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the thread's own in glibc
  const std::string reason = text == nullptr ? "unknown error" : text;
  if (speaks_of_want(reason)) throw ResourceExhaustedError(reason);
  why_not += (why_not.empty() ? "" : "; ") + reason;
  return nullptr;
}

NcclLibrary library_in(void* handle, const std::string& asked_for) {
  NcclFile file = read_nccl_file(handle);
  if (file.path.empty()) return {.reason_against = asked_for + " " + file.reason_against};
  if (!file.reason_against.empty()) return {.reason_against = std::move(file.reason_against)};
  return {.api = make_real_nccl(std::move(file))};
}

}  // namespace

NcclLibrary load_nccl(const NcclPlaces& places) {
  require_descriptors();
  std::string why_not;
  if (!places.file.empty()) {
    if (void* const handle = open_library(places.file, kMode, why_not)) {
      return library_in(handle, places.file);
    }
    return {.reason_against = fmt::format("CROSSDEVICE_NCCL_LIBRARY={}: {}", places.file, why_not)};
  }
  // A second copy beside the process's own (PyTorch brings one) would fight with it for the devices.
  if (places.in_process) {
    std::string not_yet;
    for (const char* const name : kNames) {
      if (void* const handle = open_library(name, kMode | RTLD_NOLOAD, not_yet)) {
        return library_in(handle, name);
      }
    }
    // One that is part of the program, or of a library of another name.
    if (::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) {
      return library_in(RTLD_DEFAULT, "this process");
    }
  }
  if (places.on_loader_path) {
    for (const char* const name : kNames) {
      if (void* const handle = open_library(name, kMode, why_not)) return library_in(handle, name);
    }
  }
  for (const std::string& folder : places.folders) {
    const std::string path = folder + "/" + kSoname;
    if (void* const handle = open_library(path, kMode, why_not)) return library_in(handle, path);
  }
  if (why_not.empty()) why_not = "nowhere to look";
  return {.reason_against = fmt::format("{} was not found ({})", kSoname, why_not)};
}

}  // namespace crossdevice::detail

#endif
