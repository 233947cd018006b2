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
#include "crossdevice/ops/values.h"

#include "collective/gpu_contenders.h"
#include "collective/sample.h"

namespace crossdevice::bench {

namespace {

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

PerReplica make_token(const Devices& devices) {
  std::vector<Tensor> components;
  components.reserve(devices.size());
  for (const Device& device : devices) {
    components.push_back(Tensor::zeros(DType::FLOAT32, Shape{1}, device));
  }
  return PerReplica(std::move(components));
}

/// By the library's own means.
class ClusterMeeting : public Meeting {
 public:
  ClusterMeeting(std::shared_ptr<Cluster> cluster, std::shared_ptr<CrossDeviceOps> ops,
                 const Devices& devices)
      : cluster_(std::move(cluster)), ops_(std::move(ops)), token_(make_token(devices)) {}

  /// Of zeros, on GPUs by NCCL, as it has no maximum with the library's arithmetic.
  void line_up() override {
    const Devices& devices = token_.devices();
    for (int i = 0; i < kReductionsPerLineUp; ++i) {
      ops_->reduce_into(ReduceOp::SUM, token_, token_);
      if (!devices.all_host()) wait_for_gpus(devices);
    }
  }
  [[nodiscard]] std::vector<std::string> all_gather_bytes(std::string_view mine) override {
    return cluster_->all_gather_bytes(mine);
  }

 private:
  std::shared_ptr<Cluster> cluster_;
  std::shared_ptr<CrossDeviceOps> ops_;
  PerReplica token_;  // what is reduced to line up
};

}  // namespace

Team::Team(std::shared_ptr<Cluster> cluster, std::shared_ptr<CrossDeviceOps> ops,
           const Devices& devices)
    : place_{.rank = static_cast<std::size_t>(cluster->rank()),
             .num_workers = static_cast<std::size_t>(cluster->num_workers()),
             .num_hosts = count_hosts(*cluster),
             .num_local_workers = static_cast<std::size_t>(cluster->num_local_workers())} {
  meeting_ = std::make_shared<ClusterMeeting>(std::move(cluster), std::move(ops), devices);
}

void Team::line_up() {
  if (meeting_) meeting_->line_up();
}

std::vector<double> Team::slowest(std::vector<double> samples) {
  if (!meeting_) return samples;
  for (std::size_t done = 0; done < samples.size(); done += kSamplesPerMessage) {
    const std::size_t count = std::min(kSamplesPerMessage, samples.size() - done);
    const std::span<double> mine = std::span(samples).subspan(done, count);
    for (const std::string& theirs : meeting_->all_gather_bytes(bytes_of(mine))) {
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
  if (!meeting_) return count;
  std::size_t sum = 0;
  for (const std::string& theirs : meeting_->all_gather_bytes(std::to_string(count))) {
    sum += std::stoull(theirs);
  }
  return sum;
}

}  // namespace crossdevice::bench
