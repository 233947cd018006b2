// SPDX-License-Identifier: Apache-2.0
/// The gradient lists of bench/workloads: CSV files "name,shape,numel", in forward order.
#pragma once

#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace crossdevice::bench {

/// The element counts of a list.
///
/// Errors   std::runtime_error: the file cannot be read or is not such a list.
inline std::vector<std::size_t> read_element_counts(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read " + path);
  if (line != "name,shape,numel") {
    throw std::runtime_error(path + ": expected the columns name,shape,numel, got " + line);
  }
  std::vector<std::size_t> counts;
  while (std::getline(file, line)) {
    if (!line.empty()) counts.push_back(std::stoull(line.substr(line.rfind(',') + 1)));
  }
  return counts;
}

}  // namespace crossdevice::bench
