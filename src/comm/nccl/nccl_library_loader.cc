// SPDX-License-Identifier: Apache-2.0
// NCCL is loaded for itself alone (RTLD_LOCAL: its names meet nobody else's) and stays, because its threads do.
#if defined(CROSSDEVICE_WITH_NCCL)

#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "comm/detail/nccl_loader.h"
#include "comm/nccl/nccl_functions.h"
#include "comm/nccl/real_nccl.h"

namespace crossdevice::detail {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kNames[] = {kSoname, "libnccl.so"};
constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

std::string last_error() {
  const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the thread's own in glibc
  return text == nullptr ? "unknown error" : text;
}

NcclLibrary library_in(void* handle, const std::string& asked_for) {
  NcclFile file = read_nccl_file(handle);
  if (file.path.empty()) return {.reason_against = asked_for + " " + file.reason_against};
  if (!file.reason_against.empty()) return {.reason_against = std::move(file.reason_against)};
  return {.api = make_real_nccl(std::move(file))};
}

}  // namespace

NcclLibrary load_nccl(const NcclPlaces& places) {
  if (!places.file.empty()) {
    if (void* const handle = ::dlopen(places.file.c_str(), kMode)) {
      return library_in(handle, places.file);
    }
    return {.reason_against =
                fmt::format("CROSSDEVICE_NCCL_LIBRARY={}: {}", places.file, last_error())};
  }
  // A second copy beside the process's own (PyTorch brings one) would fight with it for the devices.
  if (places.in_process) {
    for (const char* const name : kNames) {
      if (void* const handle = ::dlopen(name, kMode | RTLD_NOLOAD)) return library_in(handle, name);
    }
    // One that is part of the program, or of a library of another name.
    if (::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) {
      return library_in(RTLD_DEFAULT, "this process");
    }
  }
  std::string why_not;
  if (places.on_loader_path) {
    for (const char* const name : kNames) {
      if (void* const handle = ::dlopen(name, kMode)) return library_in(handle, name);
      why_not += (why_not.empty() ? "" : "; ") + last_error();
    }
  }
  for (const std::string& folder : places.folders) {
    const std::string path = folder + "/" + kSoname;
    if (void* const handle = ::dlopen(path.c_str(), kMode)) return library_in(handle, path);
    why_not += (why_not.empty() ? "" : "; ") + last_error();
  }
  if (why_not.empty()) why_not = "nowhere to look";
  return {.reason_against = fmt::format("{} was not found ({})", kSoname, why_not)};
}

}  // namespace crossdevice::detail

#endif
