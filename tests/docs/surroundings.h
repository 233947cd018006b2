// SPDX-License-Identifier: Apache-2.0
/// What the guide's pieces of code take for granted: two devices, some gradients, a model, a cluster.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <crossdevice/collective/schedule.h>
#include <crossdevice/crossdevice.h>

#include "support/verify_schedule.h"

namespace crossdevice::guide {

namespace cd = crossdevice;
using cd::ReduceOp;

/// One number that learns.
struct Model {
  float weight = 1.0F;
  std::vector<cd::Tensor> backward(float batch) const {
    return {cd::Tensor::copy_of(std::span(&batch, 1), {1}, "CPU:0")};
  }
  void apply(const std::vector<cd::Tensor>& gradients) {
    weight -= gradients[0].span<const float>()[0];
  }
  [[nodiscard]] cd::Tensor loss() const {
    return cd::Tensor::copy_of(std::span(&weight, 1), cd::Shape{}, "CPU:0");
  }
};

/// Throws where a piece has not done what it should have.
inline void expect(bool is_so, const std::string& what) {
  if (!is_so) throw std::logic_error("not so: " + what);
}

/// What a replica of the job has in an element of a gradient: differs by all three.
inline float contribution(int replica, std::size_t gradient, std::size_t element) {
  return static_cast<float>(1 + element % 5 + 10 * gradient) + 100.0F * static_cast<float>(replica);
}

inline void contribute(std::span<float> values, int replica, std::size_t gradient = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = contribution(replica, gradient, i);
}

/// `values` are what those of `replicas` reduce to.
inline void expect_reduced(std::span<const float> values, ReduceOp op, std::size_t gradient,
                           const std::vector<int>& replicas, std::size_t first_element = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (const int each : replicas) expected += contribution(each, gradient, first_element + i);
    if (op == ReduceOp::MEAN) expected /= static_cast<float>(replicas.size());
    if (values[i] == expected) continue;
    throw std::logic_error("gradient " + std::to_string(gradient) + ", element " +
                           std::to_string(i) + ": " + std::to_string(values[i]) + " in place of " +
                           std::to_string(expected));
  }
}

/// What the guide calls an algorithm brings everybody's contribution to everybody, once.
inline void require_all_reduce(const cd::Schedule& schedule) {
  const std::string wrong = cd::testing::verify_all_reduce(schedule);
  if (!wrong.empty()) throw std::logic_error("not an all-reduce: " + wrong);
}

/// Whether a piece finds a cluster or makes one.
enum class Joins : bool { BEFORE, BY_ITSELF };

/// Made anew for every piece.
struct Surroundings {
  virtual ~Surroundings() = default;
  virtual void run() = 0;
  /// After run().
  virtual void finish() {
    if (cluster != nullptr) cluster->barrier(50);
  }
  /// Else this worker leaves in the place of run().
  [[nodiscard]] virtual bool takes_part() const { return true; }

  explicit Surroundings(Joins joins) {
    if (joins == Joins::BEFORE) cluster = cd::Cluster::join({.timeout_seconds = 50});
    for (std::size_t i = 0; i < layers; ++i) {
      gradients.push_back(cd::PerReplica{cd::Tensor::empty(cd::DType::FLOAT32, {1000}, "CPU:0"),
                                         cd::Tensor::empty(cd::DType::FLOAT32, {1000}, "CPU:1")});
      backward(i);
    }
    contribute(a, my_number);
    contribute(b, my_number + 1);
  }

  /// Of two replicas per worker.
  std::vector<cd::PerReplica> gradients;
  cd::HierarchicalCopyAllReduce ops;
  std::vector<Model> models{2};
  std::vector<float> batches{1.0F, 3.0F};
  std::size_t layers = 3;
  void backward(std::size_t layer) {
    contribute(gradients[layer].values()[0].span<float>(), 2 * my_number, layer);
    contribute(gradients[layer].values()[1].span<float>(), 2 * my_number + 1, layer);
  }
  void backward(const cd::Tensor& gradient) { contribute(gradient.span<float>(), my_number); }
  void apply(std::size_t gradient) {
    expect_gradient(gradient, ReduceOp::MEAN, own_replicas());
    applied.push_back(gradient);
  }
  std::vector<std::size_t> applied;
  void train(cd::ReplicaContext& context) {
    const auto mine = static_cast<float>(context.replica_id_in_sync_group() + 1);
    const auto all = static_cast<float>(context.num_replicas_in_sync());
    const cd::Tensor sum =
        context.all_reduce(ReduceOp::SUM, cd::Tensor::copy_of(std::span(&mine, 1), {1}, "CPU:0"));
    expect(sum.span<const float>()[0] == all * (all + 1) / 2, "the sum over all replicas");
    ++num_trained;
  }
  std::atomic<int> num_trained = 0;

  [[nodiscard]] std::vector<int> own_replicas() const { return {2 * my_number, 2 * my_number + 1}; }
  void expect_gradient(std::size_t gradient, ReduceOp op, const std::vector<int>& replicas) const {
    for (const cd::Tensor& each : gradients[gradient].values()) {
      expect_reduced(each.span<const float>(), op, gradient, replicas);
    }
  }
  void expect_gradients(ReduceOp op, const std::vector<int>& replicas) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) expect_gradient(i, op, replicas);
  }

  /// Every worker's; the pieces run by crossdevice-run, those for MPI by mpirun too.
  std::shared_ptr<cd::Cluster> cluster;
  int my_number = cd::detect_cluster_resolver()->identity().rank;
  std::vector<float> a = std::vector<float>(4000);
  std::vector<float> b = std::vector<float>(4000);
  std::vector<float> shard = std::vector<float>(1000);
};

/// Each worker has reduced once, its own replicas.
struct HaveReduced : Surroundings {
  HaveReduced() : Surroundings(Joins::BEFORE) { ops.batch_reduce_into(ReduceOp::SUM, gradients); }
};

/// Four workers have reduced once; then the last one leaves. What the piece writes to std::cerr is kept.
struct OneLeaves : Surroundings {
  OneLeaves() : Surroundings(Joins::BEFORE) {
    ops.batch_reduce_into(ReduceOp::SUM, gradients, {.timeout_seconds = 50});
    cluster->barrier(50);
    std::cerr.rdbuf(said.rdbuf());
  }
  ~OneLeaves() override { std::cerr.rdbuf(screen); }
  OneLeaves(const OneLeaves&) = delete;
  OneLeaves& operator=(const OneLeaves&) = delete;
  [[nodiscard]] bool takes_part() const override { return my_number != kLeaver; }

  void expect_survivors_reduce() {
    expect(said.str() == leaver + "\ncompleted everywhere: #1 of epoch 1\n",
           "who has left, and what is completed: '" + said.str() + "'");
    expect(cluster->num_workers() == kLeaver && cluster->epoch() == 2, "a new cluster of three");
    for (std::size_t i = 0; i < layers; ++i) backward(i);
    cd::CollectiveAllReduce anew({"CPU:0", "CPU:1"}, 2 * kLeaver, {.timeout_seconds = 50}, cluster);
    anew.batch_reduce_into(ReduceOp::SUM, gradients);
    expect_gradients(ReduceOp::SUM, {0, 1, 2, 3, 4, 5});
  }

  static constexpr int kLeaver = 3;
  cd::CollectiveAllReduce ops{{"CPU:0", "CPU:1"}, 2 * (kLeaver + 1), {}, cluster};
  std::string leaver = cd::to_string(cluster->worker(kLeaver));
  std::ostringstream said;
  std::streambuf* screen = std::cerr.rdbuf();
};

struct Piece {
  std::string_view name;
  std::unique_ptr<Surroundings> (*make)();
};

template <class T>
std::unique_ptr<Surroundings> make() {
  return std::make_unique<T>();
}

/// Runs the piece that the command line names.
inline int run_piece(int argc, char** argv, std::span<const Piece> pieces) {
  try {
    for (const Piece& piece : pieces) {
      if (argc != 2 || piece.name != argv[1]) continue;
      const std::unique_ptr<Surroundings> surroundings = piece.make();
      if (surroundings->takes_part()) {
        surroundings->run();
        surroundings->finish();
      }
      return 0;
    }
    std::fprintf(stderr, "expected the name of a piece\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

}  // namespace crossdevice::guide
