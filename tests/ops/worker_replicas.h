// SPDX-License-Identifier: Apache-2.0
/// What workers that are processes reduce, and whether it is what it should be.
#pragma once

#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::testing {

/// What element i of replica r of a job is, before a reduction.
inline float element(std::size_t replica, std::size_t i, int round) {
  return static_cast<float>((replica + 1) * 3 + i % 101) + static_cast<float>(round);
}

inline float expected_sum(std::size_t num_replicas, std::size_t i, int round) {
  float sum = 0;
  for (std::size_t r = 0; r < num_replicas; ++r) sum += element(r, i, round);
  return sum;
}

/// Where workers' replicas lie: in the pool, in memory of the program's own, or here and there, by rank.
enum class Memory { POOL, OWN, EITHER };
inline bool is_from_pool(Memory memory, const Cluster& cluster) {
  return memory == Memory::POOL || (memory == Memory::EITHER && cluster.rank() % 2 == 0);
}

/// A worker's replicas, filled; from the pool, or from memory of the program's own.
struct Replicas {
  std::vector<std::vector<float>> own;
  PerReplica value;
};
inline Replicas replicas(const Cluster& cluster, std::size_t num_devices, std::size_t count,
                         int round, bool from_pool) {
  Replicas made;
  std::vector<Tensor> tensors;
  for (std::size_t d = 0; d < num_devices; ++d) {
    const std::size_t replica = static_cast<std::size_t>(cluster.rank()) * num_devices + d;
    std::vector<float> elements(count);
    for (std::size_t i = 0; i < count; ++i) elements[i] = element(replica, i, round);
    const Device device("CPU:" + std::to_string(d));
    if (from_pool) {
      tensors.push_back(Tensor::copy_of(std::span<const float>(elements), Shape({count}), device));
    } else {
      made.own.push_back(std::move(elements));
      tensors.push_back(Tensor::view(std::span<float>(made.own.back()), device));
    }
  }
  made.value = PerReplica(tensors);
  return made;
}

inline bool is_sum(const DistributedValues& value, std::size_t num_replicas, int round,
                   float divisor) {
  for (const Tensor& tensor : value.values()) {
    std::size_t i = 0;
    for (const float got : tensor.span<const float>()) {
      const float wanted = expected_sum(num_replicas, i++, round) / divisor;
      if (got == wanted) continue;
      std::cerr << "element " << i - 1 << ": " << got << ", expected " << wanted << '\n';
      return false;
    }
  }
  return true;
}

}  // namespace crossdevice::testing
