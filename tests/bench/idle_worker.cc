// SPDX-License-Identifier: Apache-2.0
// A worker that joins, has nothing to say for so many seconds, and then sums with the others; for crossdevice-run's tests with many workers.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 300});
    std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(argv[1])));
    cluster->barrier(300);
    cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = 300},
                                cluster);
    std::vector<float> values(100, static_cast<float>(cluster->rank()));
    const cd::PerReplica value{cd::Tensor::view(std::span(values), "CPU:0")};
    ops.reduce_into(cd::ReduceOp::SUM, value, value);
    std::printf("%.0f\n", static_cast<double>(values[99]));
    cluster->barrier(300);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
