// SPDX-License-Identifier: Apache-2.0
/// What workers tell each other around their measurements.
#include "collective/team.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/device/tensor.h"

namespace crossdevice::bench {

namespace {

/// A worker that comes early sleeps in the first of these and wakes up late; the later ones find everybody awake.
constexpr int kTokensPerLineUp = 3;
constexpr std::size_t kSamplesPerMessage = 8192;

std::size_t count_hosts(const Cluster& cluster) {
  std::size_t num_hosts = 0;
  for (int rank = 0; rank < cluster.num_workers(); ++rank) {
    if (cluster.ranks_beside(rank).front() == rank) ++num_hosts;
  }
  return num_hosts;
}

std::string_view bytes_of(std::span<const double> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

}  // namespace

Team::Team(std::shared_ptr<Cluster> cluster, std::shared_ptr<CrossDeviceOps> ops,
           const Devices& devices)
    : cluster_(std::move(cluster)),
      ops_(std::move(ops)),
      rank_(static_cast<std::size_t>(cluster_->rank())),
      num_workers_(static_cast<std::size_t>(cluster_->num_workers())),
      num_hosts_(count_hosts(*cluster_)),
      num_local_workers_(static_cast<std::size_t>(cluster_->num_local_workers())) {
  std::vector<Tensor> components;
  components.reserve(devices.size());
  for (const Device& device : devices) {
    components.push_back(Tensor::zeros(DType::FLOAT32, Shape{1}, device));
  }
  token_.emplace(std::move(components));
}

void Team::line_up() {
  if (!cluster_) return;
  for (int i = 0; i < kTokensPerLineUp; ++i) ops_->reduce_into(ReduceOp::MAX, *token_, *token_);
}

std::vector<double> Team::slowest(std::vector<double> samples) {
  if (!cluster_) return samples;
  for (std::size_t done = 0; done < samples.size(); done += kSamplesPerMessage) {
    const std::size_t count = std::min(kSamplesPerMessage, samples.size() - done);
    const std::span<double> mine = std::span(samples).subspan(done, count);
    for (const std::string& theirs : cluster_->all_gather_bytes(bytes_of(mine))) {
      std::vector<double> numbers(theirs.size() / sizeof(double));
      std::memcpy(numbers.data(), theirs.data(), numbers.size() * sizeof(double));
      for (std::size_t i = 0; i < std::min(numbers.size(), mine.size()); ++i) {
        mine[i] = std::max(mine[i], numbers[i]);
      }
    }
  }
  return samples;
}

std::size_t Team::total(std::size_t count) {
  if (!cluster_) return count;
  std::size_t sum = 0;
  for (const std::string& theirs : cluster_->all_gather_bytes(std::to_string(count))) {
    sum += std::stoull(theirs);
  }
  return sum;
}

}  // namespace crossdevice::bench
