// SPDX-License-Identifier: Apache-2.0
/// Recursive doubling: small rows, with fewer messages than everybody's to everybody.
///
/// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
#pragma once

#include <cstddef>
#include <memory>

#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

/// What is reduced, in place.
struct DoublingRow {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::size_t num_elements = 0;
  std::byte* elements = nullptr;
  double divisor = 1;  ///< of a mean
};

/// Rank i < n - p takes in what rank p + i has, p being the largest power of two that is not more than n. Then, log2 p times, with distance 1, 2, 4, ...,
/// ranks i < p and i ^ distance exchange all they have and both reduce it: the lower one's op the higher one's. Rank p + i gets the result from i.
/// So every element is combined in the same order on all ranks, ((0 + 1) + (2 + 3)) + ..., and all have the same bits.
///
/// A rank whom the others are connected to for a MessageBarrier has all the connections that this takes: distances are powers of two.
///
/// Cost     log2 p rounds of S bytes each way, and 2 more off powers of two.
class RecursiveDoubling {
 public:
  explicit RecursiveDoubling(Transport& transport)
      : transport_(transport), transfers_(std::make_unique<Transfer[]>(2)) {}

  /// The result depends on everybody's first message. Until a deadline has passed, whatever has been received meanwhile.
  ///
  /// Errors   as Transport; the row's elements are unspecified then.
  void run(const DoublingRow& row, const Deadline& deadline);

 private:
  void send(std::size_t to, const DoublingRow& row, const Deadline& deadline);
  void receive(std::size_t from, std::byte* into, const DoublingRow& row, const Deadline& deadline);
  void exchange(std::size_t with, std::byte* into, const DoublingRow& row,
                const Deadline& deadline);

  Transport& transport_;
  std::unique_ptr<Transfer[]> transfers_;  // one each way
  ScratchMemory theirs_;
};

}  // namespace crossdevice::detail
