// SPDX-License-Identifier: Apache-2.0
/// Pack counts of real models: the gradient lists of bench/workloads, packed with TF's group_by_size in reversed order.
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/pack.h"

#include "collective/gradient_list.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<std::size_t> read_counts(const std::string& model) {
  std::vector<std::size_t> counts;
  const std::string path = std::string(CROSSDEVICE_WORKLOADS_DIR) + "/" + model + ".csv";
  for (const bench::Gradient& gradient : bench::read_gradient_list(path)) {
    counts.push_back(gradient.num_elements());
  }
  return counts;
}

std::vector<TensorSize> batch_of(const std::string& model, DType dtype) {
  std::vector<TensorSize> tensors;
  for (const std::size_t count : read_counts(model)) tensors.push_back({dtype, count});
  return tensors;
}

std::size_t count_packs(const std::string& model, DType dtype, std::size_t bytes_per_pack) {
  return make_packs(batch_of(model, dtype), {.bytes_per_pack = bytes_per_pack}).size();
}

TEST(PackWorkloadsTest, ListsHoldThePublishedNumbersOfTensorsAndParameters) {
  struct Model {
    const char* name;
    std::size_t tensors;
    std::size_t parameters;
  };
  const Model models[] = {{"resnet50", 161, 25'557'032},
                          {"resnet152", 467, 60'192'808},
                          {"vgg16", 32, 138'357'544},
                          {"bert_base", 199, 109'482'240},
                          {"bert_base_pretraining", 206, 110'106'428},
                          {"bert_large", 391, 335'141'888},
                          {"gpt2_124m", 148, 124'439'808},
                          {"gpt2_124m_llmc_stacked", 16, 124'475'904},
                          {"llama2_7b", 291, 6'738'415'616},
                          {"llama3_8b", 291, 8'030'261'248}};
  for (const Model& model : models) {
    std::size_t parameters = 0;
    const std::vector<std::size_t> counts = read_counts(model.name);
    for (const std::size_t count : counts) parameters += count;
    EXPECT_EQ(counts.size(), model.tensors) << model.name;
    EXPECT_EQ(parameters, model.parameters) << model.name;
  }
}

TEST(PackWorkloadsTest, Float32PackCountsAreTfs) {
  const char* const models[] = {"resnet50",  "vgg16",      "bert_base", "bert_large",
                                "gpt2_124m", "gpt2_1558m", "llama2_7b"};
  struct Row {
    std::size_t mib_per_pack;
    std::size_t packs[7];
  };
  const Row rows[] = {{1, {35, 13, 75, 147, 50, 194, 226}},
                      {4, {19, 11, 49, 146, 37, 194, 226}},
                      {25, {4, 5, 13, 37, 13, 145, 226}},
                      {50, {2, 4, 7, 21, 7, 73, 226}},
                      {64, {2, 3, 5, 19, 5, 73, 162}}};
  for (const Row& row : rows) {
    for (std::size_t m = 0; m < std::size(models); ++m) {
      EXPECT_EQ(count_packs(models[m], DType::FLOAT32, row.mib_per_pack * kMiB), row.packs[m])
          << models[m] << " at " << row.mib_per_pack << " MiB per pack";
    }
  }
}

TEST(PackWorkloadsTest, Bfloat16PackCountsAreTfs) {
  EXPECT_EQ(count_packs("resnet50", DType::BFLOAT16, 25 * kMiB), 2u);
  EXPECT_EQ(count_packs("bert_base", DType::BFLOAT16, 25 * kMiB), 7u);
  EXPECT_EQ(count_packs("gpt2_124m", DType::BFLOAT16, 25 * kMiB), 7u);
}

TEST(PackWorkloadsTest, EveryModelKeepsAllItsElementsUnderEveryRule) {
  const char* const models[] = {"resnet50",
                                "resnet152",
                                "vgg16",
                                "bert_base",
                                "bert_large",
                                "gpt2_355m",
                                "gpt2_774m",
                                "gpt2_1558m",
                                "llama2_7b",
                                "llama3_8b",
                                "gpt2_124m_llmc_stacked"};
  for (const char* const model : models) {
    const std::vector<TensorSize> tensors = batch_of(model, DType::FLOAT32);
    const PackingOptions rules[] = {
        {},
        {.num_packs = 8},
        {.agg_small_grads_max_bytes = 4096, .agg_small_grads_max_group = 10},
        {.bytes_per_pack = 25 * kMiB}};
    for (const PackingOptions& rule : rules) {
      std::vector<std::size_t> held(tensors.size(), 0);
      for (const Pack& pack : make_packs(tensors, rule)) {
        for (const ElementRange& range : pack.ranges) held.at(range.tensor) += range.count;
      }
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        EXPECT_EQ(held[t], tensors[t].num_elements) << model << " tensor " << t;
      }
    }
  }
}

}  // namespace
}  // namespace crossdevice
