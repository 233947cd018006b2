// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/argument_agreement.h"

#include <algorithm>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

/// A worker's text may be as long as its user made it; a round is not.
constexpr std::size_t kMaxTroubleBytes = std::size_t{16} << 10;
constexpr char kWell = 'W';
constexpr char kTrouble = 'T';
constexpr char kNoMemory = 'M';

}  // namespace

std::vector<std::string> agree_on_arguments(Cluster& cluster,
                                            const std::function<std::string()>& describe,
                                            const Deadline& deadline) {
  std::string mine;
  try {
    mine = kWell + describe();
  } catch (const std::bad_alloc&) {
    mine = kNoMemory;
  } catch (const std::exception& error) {
    mine = kTrouble + std::string(error.what()).substr(0, kMaxTroubleBytes);
  }
  std::vector<std::string> all;
  try {
    all = cluster.all_gather_bytes(mine, deadline);
  } catch (const OpError&) {
    if (mine[0] == kTrouble) throw ValueError(mine.substr(1));
    throw;
  }
  std::vector<RankInfo> exhausted;
  std::string names;  // of these
  std::string troubles;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::string& text = all[rank];
    if (text.empty()) throw InternalError("a worker's arguments cannot be read");
    if (text[0] == kNoMemory) {
      exhausted.push_back(cluster.worker(static_cast<int>(rank)));
      names += (names.empty() ? "" : ", ") + to_string(exhausted.back());
    }
    if (text[0] == kTrouble) {
      troubles += fmt::format("{}{}: {}", troubles.empty() ? "" : "; ",
                              to_string(cluster.worker(static_cast<int>(rank))), text.substr(1));
    }
    text.erase(0, 1);
  }
  if (!troubles.empty()) throw ValueError(troubles);
  if (!exhausted.empty()) {
    throw ResourceExhaustedError("there is no memory left in " + names,
                                 {.operation = {}, .culprits = exhausted});
  }
  return all;
}

}  // namespace crossdevice
