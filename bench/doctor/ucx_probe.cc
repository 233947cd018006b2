// SPDX-License-Identifier: Apache-2.0
/// UCX: whether it can be used, and over what.
#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "crossdevice/comm/ucx_transport.h"
#include "crossdevice/core/environment.h"

#include "doctor/probes.h"
#include "doctor/system.h"

namespace crossdevice::doctor {
namespace {

/// As ucx_info lists them: what the library itself uses of UCX does not name them. Empty where that program is not there.
std::set<std::string> transports() {
  std::set<std::string> names;
  const std::unique_ptr<FILE, int (*)(FILE*)> list(::popen("ucx_info -d 2>/dev/null", "r"),
                                                   &::pclose);
  std::array<char, 256> line{};
  const std::string key = "Transport: ";
  while (list != nullptr && std::fgets(line.data(), line.size(), list.get()) != nullptr) {
    std::string text = line.data();
    const auto at = text.find(key);
    if (at == std::string::npos) continue;
    text = text.substr(at + key.size());
    names.insert(text.substr(0, text.find_first_of(" \n")));
  }
  return names;
}

std::string joined(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

Findings probe_ucx(const System& system) {
  const std::string reason = why_no_ucx();
  const std::set<std::string> devices = system.rdma_devices();
  Finding finding{.name = "UCX"};
  finding.facts = {{"reason", reason}, {"rdma_devices", devices}};
  const std::string rdma = devices.empty() ? "no RDMA device" : "RDMA devices: " + joined(devices);
  if (!reason.empty()) {
    finding.text = "none: " + reason + "; " + rdma;
    finding.status = devices.empty() ? Status::ABSENT : Status::SHORTFALL;
    if (environment().transport == "ucx") {
      finding.status = Status::FAILURE;
      finding.text += "; yet CROSSDEVICE_TRANSPORT = ucx";
      finding.advice =
          "unset CROSSDEVICE_TRANSPORT, or install libucx0 (to build: libucx-dev), which it needs";
    } else if (!devices.empty()) {
      finding.advice =
          "messages go over TCP; for RDMA install libucx0 (to build: libucx-dev) and set "
          "CROSSDEVICE_TRANSPORT=ucx";
    }
    return {finding};
  }
  const std::set<std::string> names = transports();
  finding.facts["transports"] = names;
  finding.text = "can be used (CROSSDEVICE_TRANSPORT=ucx); " + rdma + "; " +
                 (names.empty() ? "ucx_info (package ucx-utils) would list its transports"
                                : "transports: " + joined(names));
  return {finding};
}

}  // namespace crossdevice::doctor
