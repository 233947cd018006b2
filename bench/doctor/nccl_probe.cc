// SPDX-License-Identifier: Apache-2.0
/// NCCL: which file, which version, or why not.
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/device/device.h"

#include "doctor/probes.h"

namespace crossdevice::doctor {
namespace {

constexpr const char* kVariable = "CROSSDEVICE_NCCL_LIBRARY";

std::string version_text(detail::NcclVersion version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Finding why_not(const std::string& reason) {
  Finding finding{.name = "NCCL", .status = Status::ABSENT, .text = "none: " + reason};
  finding.facts = {{"reason", reason}};
  const std::string asked_for = environment().nccl_library;
  if (!asked_for.empty()) {
    finding.status = Status::FAILURE;
    finding.text = fmt::format("{} = {}, but {}", kVariable, asked_for, reason);
    finding.advice =
        fmt::format("set {} to a libnccl.so.2 of version 2.14 or newer, or unset it", kVariable);
  } else if (num_gpus() > 1) {
    finding.status = Status::SHORTFALL;
    finding.advice =
        "GPUs are served by our kernels alone; install libnccl2 from NVIDIA's repository, or pip "
        "install nvidia-nccl-cu12, or set "
        "CROSSDEVICE_NCCL_LIBRARY to the file";
  }
  return finding;
}

}  // namespace

Findings probe_nccl() {
  const std::string asked_for = environment().nccl_library;
  if (!asked_for.empty() && ::access(asked_for.c_str(), R_OK) != 0) {
    return {why_not("there is no such file, or it cannot be read")};
  }
  const detail::NcclLibrary library = detail::nccl_library();
  if (library.api == nullptr) return {why_not(library.reason_against)};
  Finding finding{.name = "NCCL"};
  finding.text = fmt::format("{}, {}", version_text(library.api->version()), library.api->path());
  finding.facts = {{"version", library.api->version()}, {"path", library.api->path()}};
  return {finding};
}

}  // namespace crossdevice::doctor
