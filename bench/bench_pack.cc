// SPDX-License-Identifier: Apache-2.0
/// Micro-bench: how long make_packs takes for the gradients of real models, under each rule.
#include <cstddef>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "crossdevice/collective/pack.h"

#include "collective/gradient_list.h"

namespace crossdevice {
namespace {

const char* const kModels[] = {"resnet50", "bert_large", "gpt2_1558m", "llama3_8b"};

struct Rule {
  const char* name;
  PackingOptions options;
};

const Rule kRules[] = {
    {"none", {}},
    {"num_packs_8", {.num_packs = 8}},
    {"aggregate_4KiB", {.agg_small_grads_max_bytes = 4096, .agg_small_grads_max_group = 10}},
    {"bytes_per_pack_25MiB", {.bytes_per_pack = 25 << 20}}};

void make_packs_of(benchmark::State& state, const char* model, const PackingOptions& options) {
  std::vector<TensorSize> tensors;
  const std::string path = std::string(CROSSDEVICE_WORKLOADS_DIR) + "/" + model + ".csv";
  for (const bench::Gradient& gradient : bench::read_gradient_list(path)) {
    tensors.push_back({DType::FLOAT32, gradient.num_elements()});
  }
  std::size_t num_packs = 0;
  for ([[maybe_unused]] auto iteration : state) {
    const std::vector<Pack> packs = make_packs(tensors, options);
    num_packs = packs.size();
    benchmark::DoNotOptimize(packs.data());
  }
  state.counters["tensors"] = static_cast<double>(tensors.size());
  state.counters["packs"] = static_cast<double>(num_packs);
}

const bool kRegistered = [] {
  for (const char* const model : kModels) {
    for (const Rule& rule : kRules) {
      const std::string name = std::string("make_packs/") + model + "/" + rule.name;
      benchmark::RegisterBenchmark(name.c_str(), make_packs_of, model, rule.options)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace crossdevice
