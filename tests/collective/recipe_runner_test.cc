// SPDX-License-Identifier: Apache-2.0
/// Why threads may run pieces of one reduction at the same time, in any order: a piece reads and writes its own elements of inputs and outputs alone. So
/// each piece runs here where all other elements are noise, and everything but its own outputs must be as before. Cuts, the order of pieces, and which
/// runner takes which are drawn.
#include "collective/detail/recipe_runner.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collective/interleaving_cases.h"
#include "support/choices.h"
#include "support/reference_schedule.h"

namespace crossdevice {
namespace {

using testing::Choices;
using testing::GuardedRow;

constexpr std::uint64_t kUsualSeeds = 300;

/// A tensor that is reduced by a plan, in pieces.
class Reduction {
 public:
  explicit Reduction(Choices& choices)
      : num_inputs_(2 + choices.below(7)), maker_(choices.one_of(testing::kMakers)) {
    constexpr DType kDTypes[] = {DType::FLOAT32, DType::FLOAT16, DType::INT32, DType::UINT8};
    constexpr ReduceOp kOps[] = {ReduceOp::SUM, ReduceOp::MAX, ReduceOp::MEAN};
    // More than a block of the runner's, now and then.
    const std::size_t counts[] = {1, 2, num_inputs_ + 1, 97, choices.below(20'000)};
    dtype_ = choices.one_of(kDTypes);
    op_ = choices.one_of(kOps);
    if (op_ == ReduceOp::MEAN && is_integer(dtype_)) op_ = ReduceOp::SUM;
    count_ = choices.one_of(counts);
    for (std::size_t i = 0; i < num_inputs_; ++i) rows_.emplace_back(size(), choices.seed());
    // Outputs are all of the inputs, some of them, or others.
    const std::size_t num_in_place = choices.below(num_inputs_ + 1);
    for (std::size_t i = 0; i < num_in_place; ++i) outputs_.push_back(i);
    for (std::size_t i = choices.below(2) + (num_in_place == 0 ? 1 : 0); i > 0; --i) {
      outputs_.push_back(rows_.size());
      rows_.emplace_back(size(), choices.seed());
    }
    const Schedule schedule = maker_.make(num_inputs_, count_);
    plan_ = plan_reduction(schedule, dtype_);
    std::vector<const void*> inputs;
    for (std::size_t i = 0; i < num_inputs_; ++i) inputs.push_back(rows_[i].begin());
    expected_ = testing::reference_execute(schedule, op_, dtype_, inputs)[0];
    for (const GuardedRow& row : rows_) before_.push_back(row.bytes());
    cut(choices);
  }

  /// What is wrong; "": nothing.
  std::string run(Choices& choices) {
    detail::RecipeRunner runners[3];
    while (!pieces_.empty()) {
      std::swap(pieces_[choices.below(pieces_.size())], pieces_.back());
      const Piece piece = pieces_.back();
      pieces_.pop_back();
      const std::string trouble =
          run_alone(choices, piece, runners[choices.below(std::size(runners))]);
      if (!trouble.empty()) return trouble;
    }
    return {};
  }

 private:
  struct Piece {
    Interval range;
    std::size_t recipe = 0;
  };
  [[nodiscard]] std::size_t size() const { return count_ * size_in_bytes(dtype_); }

  /// Where recipes change, and anywhere.
  void cut(Choices& choices) {
    for (const ReductionPlan::Part& part : plan_.parts) {
      for (std::size_t begin = part.range.begin; begin < part.range.end();) {
        const std::size_t rest = part.range.end() - begin;
        const std::size_t count = choices.once_in(2) ? rest : 1 + choices.below(rest);
        pieces_.push_back({{.begin = begin, .count = count}, part.recipe});
        begin += count;
      }
    }
  }

  std::string run_alone(Choices& choices, const Piece& piece, detail::RecipeRunner& runner) {
    const std::size_t begin = piece.range.begin * size_in_bytes(dtype_);
    const std::size_t length = piece.range.count * size_in_bytes(dtype_);
    std::vector<GuardedRow> rows;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      rows.emplace_back(size(), choices.seed());
      std::memcpy(rows[r].begin() + begin, before_[r].data() + begin, length);
    }
    std::vector<std::vector<std::byte>> after;
    for (const GuardedRow& row : rows) after.push_back(row.bytes());
    for (const std::size_t output : outputs_) {
      std::memcpy(after[output].data() + begin, expected_.data() + begin, length);
    }
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (std::size_t i = 0; i < num_inputs_; ++i) inputs.push_back(rows[i].begin());
    for (const std::size_t output : outputs_) outputs.push_back(rows[output].begin());
    runner.run(op_, {dtype_, count_, inputs, outputs}, plan_.recipes[piece.recipe], piece.range,
               choices.once_in(2) ? StoreMode::STREAMING : StoreMode::CACHED);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].bytes() == after[r] && rows[r].has_whole_guards()) continue;
      return fmt::format("{} of {} {} {}, {} inputs: [{}, {}) leaves something else in row {}",
                         maker_.name, count_, crossdevice::to_string(dtype_),
                         crossdevice::to_string(op_), num_inputs_, piece.range.begin,
                         piece.range.end(), r);
    }
    return {};
  }

  std::size_t num_inputs_;
  const testing::Maker& maker_;
  DType dtype_ = DType::FLOAT32;
  ReduceOp op_ = ReduceOp::SUM;
  std::size_t count_ = 0;
  std::vector<GuardedRow> rows_;  // the inputs, then outputs that are none
  std::vector<std::size_t> outputs_;
  ReductionPlan plan_;
  std::vector<std::byte> expected_;
  std::vector<std::vector<std::byte>> before_;
  std::vector<Piece> pieces_;
};

TEST(RecipeRunner, APieceTouchesItsOwnElementsAlone) {
  const testing::SeedRange seeds = testing::seeds(kUsualSeeds);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    Choices choices(seed);
    Reduction reduction(choices);
    ASSERT_EQ(reduction.run(choices), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace crossdevice
