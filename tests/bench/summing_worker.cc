// SPDX-License-Identifier: Apache-2.0
// A worker that sums with the others and says what came out; for the tests of crossdevice-run across hosts.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

int main() {
  try {
    const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
    constexpr std::size_t kCount = 100'003;
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>((i % 7 + 1) << static_cast<unsigned>(cluster->rank()));
    }
    cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = 60},
                                cluster);
    const cd::PerReplica value{cd::Tensor::view(std::span(values), "CPU:0")};
    ops.reduce_into(cd::ReduceOp::SUM, value, value);
    const std::size_t factor =
        (std::size_t{1} << static_cast<unsigned>(cluster->num_workers())) - 1;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      wrong += values[i] != static_cast<float>((i % 7 + 1) * factor) ? 1U : 0U;
    }
    std::printf("local %d of %d: %zu wrong\n", cluster->local_rank(), cluster->num_local_workers(),
                wrong);
    cluster->barrier();
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
