// SPDX-License-Identifier: Apache-2.0
// A worker that meets the others and says what it has found; for crossdevice-run's tests.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/crossdevice.h"

int main() {
  try {
    const std::shared_ptr<crossdevice::Cluster> cluster =
        crossdevice::Cluster::join({.timeout_seconds = 60});
    std::string all;
    for (const std::string& part :
         cluster->all_gather_bytes(std::to_string(cluster->rank()), 60.0)) {
      all += part + ",";
    }
    std::printf("rank %d of %d, local %d of %d: %s\n", cluster->rank(), cluster->num_workers(),
                cluster->local_rank(), cluster->num_local_workers(), all.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
