// SPDX-License-Identifier: Apache-2.0
/// Interfaces, addresses, and which of them this worker would tell the others.
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"

#include "doctor/probes.h"
#include "run/own_addresses.h"

namespace crossdevice::doctor {
namespace {

Finding find_loopback(const std::vector<run::OwnAddress>& all) {
  Finding finding{.name = "loopback"};
  for (const run::OwnAddress& each : all) {
    if (each.is_loopback) finding.text += (finding.text.empty() ? "" : ", ") + each.text;
  }
  if (finding.text.empty()) {
    finding.status = Status::FAILURE;
    finding.text = "no loopback address";
    finding.advice = "workers on one machine meet there; as root: ip link set lo up";
  }
  return finding;
}

/// Those that CROSSDEVICE_SOCKET_IFNAME names and nobody has.
std::vector<std::string> missing_interfaces(const std::string& wanted,
                                            const std::map<std::string, std::string>& there) {
  std::vector<std::string> missing;
  for (std::size_t begin = 0; begin < wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
    const std::string name = wanted.substr(begin, end - begin);
    if (!name.empty() && there.count(name) == 0) missing.push_back(name);
    begin = end + 1;
  }
  return missing;
}

Finding find_interfaces(const std::vector<run::OwnAddress>& all) {
  Finding finding{.name = "network"};
  std::map<std::string, std::string> by_interface;
  for (const run::OwnAddress& each : all) {
    if (each.is_loopback) continue;
    std::string& list = by_interface[each.interface];
    list += (list.empty() ? "" : ", ") + each.text;
    finding.facts[each.interface].push_back(each.text);
  }
  for (const auto& [interface, list] : by_interface) {
    finding.text += fmt::format("{}{}: {}", finding.text.empty() ? "" : "; ", interface, list);
  }
  if (by_interface.empty()) {
    finding.status = Status::ABSENT;
    finding.text = "only the loopback: workers on other machines do not reach this one";
  }
  const std::string wanted = process_environment()(kSocketInterfaceVariable).value_or("");
  for (const std::string& name : missing_interfaces(wanted, by_interface)) {
    finding.status = Status::FAILURE;
    finding.text +=
        fmt::format("; {} = {}, but {} has no address", kSocketInterfaceVariable, wanted, name);
    finding.advice =
        fmt::format("name interfaces that have one, or unset {}", kSocketInterfaceVariable);
  }
  return finding;
}

}  // namespace

Findings probe_network(const std::vector<run::OwnAddress>& addresses) {
  return {find_loopback(addresses), find_interfaces(addresses)};
}

}  // namespace crossdevice::doctor
