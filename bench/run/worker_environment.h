// SPDX-License-Identifier: Apache-2.0
/// The variables that tell a worker who it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace crossdevice::run {

struct WorkerPlace {
  int rank = 0;
  int num_workers = 1;
  int local_rank = 0;
  int local_num_workers = 1;
  std::string chief_address{};
  std::string secret_file{};
  std::string
      host_id{};  ///< who shares a host with this worker; empty: what the worker itself finds
  std::string interface {};  ///< the one that leads to the others; empty: as inherited
};

/// The environment `inherited` ("NAME=value") with the worker's CROSSDEVICE_* in place of any that were there.
[[nodiscard]] std::vector<std::string> environment_of(const WorkerPlace& place,
                                                      const std::vector<std::string>& inherited);

}  // namespace crossdevice::run
