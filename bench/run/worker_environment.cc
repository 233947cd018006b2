// SPDX-License-Identifier: Apache-2.0
#include "run/worker_environment.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"

namespace crossdevice::run {

std::vector<std::string> environment_of(const WorkerPlace& place,
                                        const std::vector<std::string>& inherited) {
  // CROSSDEVICE_LAUNCHER: if a launcher has started us, its variables are not about our workers.
  std::vector<std::pair<std::string, std::string>> ours{
      {kRankVariable, std::to_string(place.rank)},
      {kNumWorkersVariable, std::to_string(place.num_workers)},
      {kLocalRankVariable, std::to_string(place.local_rank)},
      {kLocalNumWorkersVariable, std::to_string(place.local_num_workers)},
      {kChiefAddressVariable, place.chief_address},
      {kSecretFileVariable, place.secret_file},
      {kLauncherVariable, "crossdevice"}};
  if (!place.host_id.empty()) ours.emplace_back(kHostIdVariable, place.host_id);
  if (!place.interface.empty()) ours.emplace_back(kSocketInterfaceVariable, place.interface);
  std::vector<std::string> all;
  all.reserve(inherited.size() + ours.size());
  for (const std::string_view text : inherited) {
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_ours = std::any_of(ours.begin(), ours.end(),
                                     [&](const auto& variable) { return variable.first == name; });
    if (!is_ours) all.emplace_back(text);
  }
  for (const auto& [name, value] : ours) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

}  // namespace crossdevice::run
