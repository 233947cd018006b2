// SPDX-License-Identifier: Apache-2.0
// A strategy with cross-device ops of your own: they count, and the library's do the work.
#include <atomic>
#include <cstdio>
#include <memory>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

/// Counts what is reduced. All forms of a call - in place, batch, asynchronous - come down to this hook.
class CountingOps : public cd::ReductionToOneDevice {
 public:
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 protected:
  cd::Mirrored reduce_implementation(ReduceOp op, const cd::PerReplica& value,
                                     const cd::Destinations& destinations,
                                     const cd::CommunicationOptions& options) override {
    bytes_ += value.values()[0].size_bytes();
    return cd::ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::atomic<std::size_t> bytes_ = 0;
};

}  // namespace

int main() {
  const auto ops = std::make_shared<CountingOps>();
  cd::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}, .cross_device_ops = ops});

  // Each replica learns the mean of all replicas' targets: 10 and 30.
  std::vector<float> weights(2, 0.0F);  // one per replica, each touched by its own thread alone
  for (int step = 0; step < 60; ++step) {
    strategy.run([&](cd::ReplicaContext& context) {
      const std::size_t id = context.replica_id_in_sync_group();
      const float target = id == 0 ? 10.0F : 30.0F;
      cd::Tensor gradient = cd::Tensor::empty(cd::DType::FLOAT32, {1}, context.device());
      gradient.span<float>()[0] = weights[id] - target;
      gradient = context.all_reduce(ReduceOp::MEAN, gradient);
      weights[id] -= 0.5F * gradient.span<const float>()[0];
    });
  }
  std::printf("weights %g and %g, %zu bytes reduced\n", weights[0], weights[1], ops->bytes());
  const bool has_learnt = weights[0] == weights[1] && weights[0] > 19.99F && weights[0] < 20.01F;
  return has_learnt && ops->bytes() == 60 * sizeof(float) ? 0 : 1;
}
