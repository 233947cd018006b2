// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/recursive_doubling.h"

#include <span>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::detail {
namespace {

std::size_t size_of(const DoublingRow& row) { return row.num_elements * size_in_bytes(row.dtype); }

/// elements = lower op higher, one of which they are.
void combine(const DoublingRow& row, const std::byte* lower, const std::byte* higher) {
  if (row.num_elements == 0) return;
  const ReduceOp op = row.op == ReduceOp::MEAN ? ReduceOp::SUM : row.op;
  const void* const inputs[] = {lower, higher};
  void* const outputs[] = {row.elements};
  const ReducePass pass{.op = op, .dtype = row.dtype, .inputs = inputs, .outputs = outputs};
  find_reduce_kernel(op, row.dtype)(pass, 0, row.num_elements);
}

}  // namespace

void RecursiveDoubling::send(std::size_t to, const DoublingRow& row, const Deadline& deadline) {
  transport_.send(static_cast<int>(to), {row.elements, size_of(row)}, transfers_[0]);
  transport_.wait(transfers_[0], deadline);
}

void RecursiveDoubling::receive(std::size_t from, std::byte* into, const DoublingRow& row,
                                const Deadline& deadline) {
  transport_.receive(static_cast<int>(from), {into, size_of(row)}, transfers_[1]);
  transport_.wait(transfers_[1], deadline);
}

void RecursiveDoubling::exchange(std::size_t with, std::byte* into, const DoublingRow& row,
                                 const Deadline& deadline) {
  const std::size_t size = size_of(row);
  transport_.exchange(static_cast<int>(with), {row.elements, size}, transfers_[0], {into, size},
                      transfers_[1], deadline);
}

void RecursiveDoubling::run(const DoublingRow& row, const Deadline& deadline) {
  const auto num_ranks = static_cast<std::size_t>(transport_.num_ranks());
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const std::size_t core = halving_doubling_core(num_ranks);
  if (rank >= core) {
    send(rank - core, row, deadline);
    receive(rank - core, row.elements, row, deadline);
    return;
  }
  std::byte* const theirs = theirs_.reserve(size_of(row));
  const bool has_extra = rank + core < num_ranks;
  if (has_extra) {
    receive(rank + core, theirs, row, deadline);
    combine(row, row.elements, theirs);
  }
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    const std::size_t other = rank ^ distance;
    exchange(other, theirs, row, deadline);
    if (rank < other) {
      combine(row, row.elements, theirs);
    } else {
      combine(row, theirs, row.elements);
    }
  }
  if (row.op == ReduceOp::MEAN) {
    divide_elements(row.dtype, row.elements, row.num_elements, row.divisor);
  }
  if (has_extra) send(rank + core, row, deadline);
}

}  // namespace crossdevice::detail
