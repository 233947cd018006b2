// SPDX-License-Identifier: Apache-2.0
/// Jobs for schedule executors over a DrawnNetwork, drawn from a seed, and what must come of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/rooted.h"
#include "crossdevice/collective/schedule_executor.h"

#include "collective/scheduled_reduce_fixture.h"
#include "support/choices.h"
#include "support/drawn_network.h"
#include "support/reference_schedule.h"

namespace crossdevice::testing {

/// CROSSDEVICE_SEEDS and CROSSDEVICE_FIRST_SEED of the environment, or what is given.
struct SeedRange {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
};
[[nodiscard]] inline SeedRange seeds(std::uint64_t usual_count) {
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  return {.first = number("CROSSDEVICE_FIRST_SEED", 1),
          .count = number("CROSSDEVICE_SEEDS", usual_count)};
}

/// Bytes with guards on both sides.
class GuardedRow {
 public:
  GuardedRow(std::size_t size, std::uint64_t noise) : size_(size), memory_(size + 2 * kGuard) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = noise_at(noise, i);
    guards_ = memory_;
  }
  [[nodiscard]] std::byte* begin() { return memory_.data() + kGuard; }
  [[nodiscard]] const std::byte* begin() const { return memory_.data() + kGuard; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {begin(), begin() + size_}; }
  [[nodiscard]] bool has_whole_guards() const {
    return std::memcmp(memory_.data(), guards_.data(), kGuard) == 0 &&
           std::memcmp(begin() + size_, guards_.data() + kGuard + size_, kGuard) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 96;
  [[nodiscard]] static std::byte noise_at(std::uint64_t noise, std::size_t i) {
    return static_cast<std::byte>((noise + i) * 0x9e3779b97f4a7c15 >> 56);
  }
  std::size_t size_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> guards_;
};

/// How a schedule is made, and what it promises.
struct DrawnSchedule {
  std::string name;
  Schedule schedule;
  bool is_all_reduce = false;
};

/// Of everything the library makes schedules for.
[[nodiscard]] inline DrawnSchedule draw_schedule(Choices& choices, std::size_t n,
                                                 std::size_t count) {
  constexpr std::size_t kNumRooted = 5;
  constexpr std::size_t kNumParted = 5;
  const std::size_t root = choices.below(n);
  // As many of everything in a row, as callers of these have it; or any parts.
  std::vector<Interval> parts = padded_split({.begin = 0, .count = count}, n);
  if (choices.once_in(2)) {
    std::vector<std::size_t> ends{count};
    for (std::size_t i = 1; i < n; ++i) ends.push_back(choices.below(count + 1));
    std::ranges::sort(ends);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < n; ++i) {
      parts[i] = {.begin = begin, .count = ends[i] - begin};
      begin = ends[i];
    }
  }
  // All-reduce makers as often as all others together.
  if (choices.once_in(2)) {
    const Maker& maker = choices.one_of(kMakers);
    return {maker.name, maker.make(n, count), true};
  }
  switch (choices.below(kNumRooted + kNumParted)) {
    case 0:
      return {"ChainBroadcast", chain_broadcast_schedule(n, count, root)};
    case 1:
      return {"TreeBroadcast", tree_broadcast_schedule(n, count, root)};
    case 2:
      return {"ChainReduce", chain_reduce_schedule(n, count, root)};
    case 3:
      return {"TreeReduce", tree_reduce_schedule(n, count, root)};
    case 4:
      return {"DirectReduce", direct_reduce_schedule(n, count, root)};
    case 5:
      return {"DirectGather", direct_gather_schedule(parts, root)};
    case 6:
      return {"DirectReduceScatter", direct_reduce_scatter_schedule(parts)};
    case 7:
      return {"RingReduceScatter", ring_reduce_scatter_schedule(parts)};
    case 8:
      return {"RingAllGather", ring_all_gather_schedule(parts)};
    default:
      return {"DirectAllGather", direct_all_gather_schedule(parts)};
  }
}

/// One row on every rank.
class DrawnJob {
 public:
  DrawnJob(Choices& choices, std::size_t n) {
    const std::size_t counts[] = {0, 1, 2, n - 1, n, n + 1, 31, 64, 97, 1 + choices.below(200)};
    constexpr std::size_t kPieces[] = {1, 2, 3, 7, 16, 50, 1000};
    const std::size_t count = choices.one_of(counts);
    const std::size_t piece = std::max(choices.one_of(kPieces), count / 24);
    made_ = draw_schedule(choices, n, count);
    dtype_ = choices.one_of(kDTypes);
    op_ = choices.one_of(kOps);
    if (op_ == ReduceOp::MEAN && (is_integer(dtype_) || !made_.is_all_reduce)) op_ = ReduceOp::SUM;
    is_in_place_ = choices.once_in(2);
    name_ = fmt::format("{} of {} {}, {} in pieces of {}{}", made_.name, count,
                        crossdevice::to_string(dtype_), crossdevice::to_string(op_), piece,
                        is_in_place_ ? ", in place" : "");
    for (std::size_t rank = 0; rank < n; ++rank) {
      programs_.push_back(compile_schedule(made_.schedule, rank, piece));
      inputs_.emplace_back(count * size_in_bytes(dtype_), choices.seed());
      outputs_.emplace_back(count * size_in_bytes(dtype_), choices.seed());
      if (is_in_place_ && count > 0) {
        std::memcpy(outputs_[rank].begin(), inputs_[rank].begin(), count * size_in_bytes(dtype_));
      }
    }
    std::vector<const void*> addresses;
    for (const GuardedRow& input : inputs_) {
      addresses.push_back(input.begin());
      inputs_before_.push_back(input.bytes());
    }
    expected_ = reference_execute(made_.schedule, op_, dtype_, addresses);
    // Of integers every order gives the same, so it needs no schedule to say what is right.
    if (made_.is_all_reduce && is_integer(dtype_)) {
      expected_.assign(n, reference_reduce(op_, dtype_, addresses, count));
    }
    // Then the executor has as few buffers as a combination needs: it takes as many as fit into kBufferBytes.
    if (n <= 8 && choices.once_in(3)) {
      for (ScheduleProgram& program : programs_) {
        if (program.max_buffers > 0) {
          program.max_piece_elements = ScheduleExecutor::kBufferBytes / size_in_bytes(dtype_);
        }
      }
    }
  }

  [[nodiscard]] ScheduleJob of_rank(std::size_t rank) {
    return {.program = &programs_[rank],
            .op = op_,
            .dtype = dtype_,
            .input = is_in_place_ ? outputs_[rank].begin() : inputs_[rank].begin(),
            .output = outputs_[rank].begin(),
            .divisor = static_cast<double>(programs_.size())};
  }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// What is wrong on a rank, whose executor has or has not come to its end; "": nothing.
  [[nodiscard]] std::string trouble(std::size_t rank, bool has_ended_well) const {
    if (!inputs_[rank].has_whole_guards() || !outputs_[rank].has_whole_guards()) {
      return fmt::format("{}: bytes beside the row of rank {} have changed", name_, rank);
    }
    if (inputs_[rank].bytes() != inputs_before_[rank]) {
      return fmt::format("{}: the input of rank {} has changed", name_, rank);
    }
    if (has_ended_well && outputs_[rank].bytes() != expected_[rank]) {
      return fmt::format("{}: rank {} has a wrong result", name_, rank);
    }
    return {};
  }

 private:
  static constexpr DType kDTypes[] = {DType::INT32,   DType::INT32,    DType::UINT8,
                                      DType::INT64,   DType::FLOAT32,  DType::FLOAT64,
                                      DType::FLOAT16, DType::BFLOAT16, DType::INT16};
  static constexpr ReduceOp kOps[] = {ReduceOp::SUM, ReduceOp::SUM, ReduceOp::MAX, ReduceOp::MIN,
                                      ReduceOp::MEAN};
  DrawnSchedule made_;
  std::string name_;
  ReduceOp op_ = ReduceOp::SUM;
  DType dtype_ = DType::INT32;
  bool is_in_place_ = false;
  std::vector<ScheduleProgram> programs_;  // by rank
  std::vector<GuardedRow> inputs_;
  std::vector<GuardedRow> outputs_;
  std::vector<std::vector<std::byte>> inputs_before_;
  std::vector<std::vector<std::byte>> expected_;
};

/// Everybody but `rank`.
[[nodiscard]] inline std::vector<int> peers_of(std::size_t rank, std::size_t n) {
  std::vector<int> peers;
  for (std::size_t peer = 0; peer < n; ++peer) {
    if (peer != rank) peers.push_back(static_cast<int>(peer));
  }
  return peers;
}

}  // namespace crossdevice::testing
