// SPDX-License-Identifier: Apache-2.0
// libtorch, data parallel without PyTorch's own: hooks on the parameters' gradients let packs leave while autograd still
// computes. Torch's gradients lie in the library's pool, where the workers of a machine reduce them as they lie: nothing is copied.
//
//   crossdevice-run -n 2 -- ./torch_hook
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

namespace {

/// What torch's DistributedDataParallel does: the gradients of a module's parameters become their mean over all workers.
class DataParallel {
 public:
  DataParallel(std::vector<torch::Tensor> parameters, std::shared_ptr<cd::Cluster> cluster)
      : parameters_(std::move(parameters)),
        ops_({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = 60}, cluster),
        bucketer_(ops_, put_gradients_into_pool(),
                  {.op = ReduceOp::MEAN, .communication = {.bytes_per_pack = 1024}}) {
    // All workers begin with the first one's weights.
    cd::Communicator world(std::move(cluster));
    for (torch::Tensor& parameter : parameters_) world.broadcast(view(parameter), /*root=*/0);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
      accumulators_.back()->add_post_hook(std::make_unique<Hook>(bucketer_, i));
    }
  }

  /// After loss.backward(): every gradient is the mean.
  void wait() {
    bucketer_.wait();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].grad().data_ptr() == gradients_[i].data()) continue;
      throw std::logic_error("a gradient is not where it was put: zero_grad() of the optimizer?");
    }
  }
  /// In place: the gradients stay where the library knows them.
  void zero_grad() {
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().zero_();
  }

 private:
  /// Called by autograd when a parameter's gradient is complete.
  class Hook : public torch::autograd::FunctionPostHook {
   public:
    Hook(cd::GradientBucketer& bucketer, std::size_t index) : bucketer_(bucketer), index_(index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      bucketer_.ready(index_);
      return outputs;
    }

   private:
    cd::GradientBucketer& bucketer_;
    std::size_t index_;
  };

  /// torch's own memory; on GPUs: "GPU:i" and from_cuda(torch's current stream).
  static cd::Tensor view(const torch::Tensor& tensor) {
    return cd::Tensor::view(tensor.mutable_data_ptr<float>(),
                            {static_cast<std::size_t>(tensor.numel())}, "CPU:0");
  }
  /// Where torch adds up each gradient from now on. Memory of torch's own does too (view()), but is copied between the workers of a machine.
  std::vector<cd::PerReplica> put_gradients_into_pool() {
    std::vector<cd::PerReplica> all;
    all.reserve(parameters_.size());
    for (torch::Tensor& parameter : parameters_) {
      const cd::Tensor gradient = cd::Tensor::zeros(
          cd::DType::FLOAT32, {static_cast<std::size_t>(parameter.numel())}, "CPU:0");
      parameter.mutable_grad() =
          torch::from_blob(gradient.data(), parameter.sizes(), [gradient](void*) {});
      gradients_.push_back(gradient);
      all.push_back({gradient});
    }
    return all;
  }

  std::vector<torch::Tensor> parameters_;
  std::vector<cd::Tensor> gradients_;  // as the library sees them
  cd::CollectiveAllReduce ops_;
  cd::GradientBucketer bucketer_;
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));
  std::vector<Accumulator> accumulators_;  // kept: torch itself only looks for them while they live
};

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::ReLU(),
                               torch::nn::Linear(32, 1));
}

}  // namespace

int main() {
  const std::shared_ptr<cd::Cluster> cluster = cd::Cluster::join({.timeout_seconds = 60});
  const int rank = cluster->rank();
  const int workers = cluster->num_workers();

  // The same data on every worker; each trains with its part. A copy of the model trains with all of it, alone.
  torch::manual_seed(7);
  const torch::Tensor inputs = torch::randn({16 * workers, 8});
  const torch::Tensor targets = inputs.sum(1, /*keepdim=*/true);
  torch::nn::Sequential alone = make_model();
  torch::manual_seed(rank == 0 ? 7 : 1000);  // what the others begin with must not matter
  torch::nn::Sequential model = make_model();
  {
    const torch::NoGradGuard guard;
    if (rank == 0) {
      for (std::size_t i = 0; i < model->parameters().size(); ++i) {
        model->parameters()[i].copy_(alone->parameters()[i]);
      }
    }
  }
  DataParallel parallel(model->parameters(), cluster);
  torch::optim::SGD step_together(model->parameters(), 0.05);
  torch::optim::SGD step_alone(alone->parameters(), 0.05);

  double loss = 0;
  for (int step = 0; step < 30; ++step) {
    parallel.zero_grad();
    torch::mse_loss(model->forward(inputs.narrow(0, 16 * rank, 16)),
                    targets.narrow(0, 16 * rank, 16))
        .backward();
    parallel.wait();
    step_together.step();

    step_alone.zero_grad();
    const torch::Tensor whole = torch::mse_loss(alone->forward(inputs), targets);
    whole.backward();
    step_alone.step();
    loss = whole.item<double>();
  }
  // All workers together have done what one process does with all the data.
  double difference = 0;
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    const torch::Tensor apart = (model->parameters()[i] - alone->parameters()[i]).abs().max();
    difference = std::max(difference, apart.item<double>());
  }
  std::printf("rank %d of %d: loss %g, weights differ by %g from one process's\n", rank, workers,
              loss, difference);
  cluster->barrier();
  return difference < 1e-4 ? 0 : 1;
}
