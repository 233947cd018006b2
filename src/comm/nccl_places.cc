// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"

#include "comm/detail/nccl_loader.h"

namespace crossdevice::detail {
namespace {

/// lib/python3.x/site-packages/nvidia/*/lib of a Python environment, dist-packages where Debian's pip installed: the wheels nvidia-nccl-cu12 and
/// nvidia-nccl-cu13 put NCCL there.
void add_wheel_folders(const std::string& environment_root, std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::error_code error;  // a folder that cannot be read has no NCCL for us
  for (fs::directory_iterator each(fs::path(environment_root) / "lib", error), end;
       !error && each != end; each.increment(error)) {
    if (each->path().filename().string().rfind("python3", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const char* package : {"nccl", "cu13"}) {
        const fs::path folder = each->path() / packages / "nvidia" / package / "lib";
        std::error_code missing;
        if (fs::is_directory(folder, missing)) folders.push_back(folder.string());
      }
    }
  }
}

}  // namespace

NcclPlaces nccl_places() {
  NcclPlaces places;
  places.file = environment().nccl_library;
#if defined(CROSSDEVICE_NCCL_PREFIX)
  for (const char* folder : {CROSSDEVICE_NCCL_PREFIX "/lib64", CROSSDEVICE_NCCL_PREFIX "/lib"}) {
    places.folders.emplace_back(folder);
  }
#endif
  const EnvironmentSource source = process_environment();
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::optional<std::string> root = source(variable);
    if (root.has_value() && !root->empty()) add_wheel_folders(*root, places.folders);
  }
  // Without an environment: what pip installed for the user, or for all.
  const std::optional<std::string> home = source("HOME");
  if (home.has_value() && !home->empty()) add_wheel_folders(*home + "/.local", places.folders);
  add_wheel_folders("/usr/local", places.folders);
  return places;
}

std::string nccl_version_text(NcclVersion version) {
  // Up to 2.8 it was 1000 * major + 100 * minor + patch.
  const int major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

}  // namespace crossdevice::detail
