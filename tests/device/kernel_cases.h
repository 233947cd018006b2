// SPDX-License-Identifier: Apache-2.0
/// Launches that every KernelApi has to get right, bit by bit as the host kernels: run on the host over the kernels' bodies, and on a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/kernel_api.h"

namespace crossdevice::testing {

using Bytes = std::vector<std::byte>;

/// Memory that kernels reach, with guards around what is asked for.
class KernelMemory {
 public:
  KernelMemory() = default;
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;
  virtual ~KernelMemory() = default;

  /// Room that holds `contents`, `misalignment` bytes behind a multiple of 256; until clear().
  virtual void* make(const Bytes& contents, std::size_t misalignment) = 0;
  /// What is there when everything enqueued so far is done.
  virtual Bytes read(const void* pointer, std::size_t size_bytes) = 0;
  /// Whether nothing was written around what was asked for.
  virtual bool guards_are_intact() = 0;
  virtual void clear() = 0;
  [[nodiscard]] virtual detail::CudaStream stream() const = 0;
};

struct ReduceCase {
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::size_t num_inputs = 2;
  std::size_t num_outputs = 1;
  std::size_t count = 1;
  std::size_t first_group = 0;
  std::size_t misalignment = 0;  ///< of all buffers, in elements (components of complex numbers)
  std::size_t more_misalignment = 0;  ///< of buffer number k: k times as much more
  bool in_place = false;              ///< the outputs are the last inputs, in reverse order
};

/// One launch, or (by a test's own loop) a part of it; fails the test where results, guards or inputs are not as they must be.
void check_reduce(KernelMemory& memory, detail::KernelApi& kernels, const ReduceCase& c,
                  std::mt19937_64& random);

/// Every interesting case of an op and dtype.
void check_all_reductions(KernelMemory& memory, detail::KernelApi& kernels, ReduceOp op,
                          DType dtype);

/// Tensors of different sizes and alignments in one call: those of `counts`, tensor t as by `c` but for its count, and t times c.misalignment more.
void check_reduce_many(KernelMemory& memory, detail::KernelApi& kernels, const ReduceCase& c,
                       const std::vector<std::size_t>& counts, std::mt19937_64& random);

/// Every interesting case of an op and dtype.
void check_all_reductions_of_many(KernelMemory& memory, detail::KernelApi& kernels, ReduceOp op,
                                  DType dtype);

struct CopyCase {
  DType source = DType::FLOAT32;
  DType destination = DType::FLOAT32;
  double divisor = 1;
  std::vector<std::size_t> counts{};
  std::size_t source_misalignment =
      0;  ///< in elements (components) of the source, of range number r: r + 1 times as much
  std::size_t destination_misalignment = 0;  ///< likewise
  bool in_place = false;
};

void check_copy(KernelMemory& memory, detail::KernelApi& kernels, const CopyCase& c,
                std::mt19937_64& random);

/// Every interesting case of a pair of dtypes.
void check_all_copies(KernelMemory& memory, detail::KernelApi& kernels, DType source,
                      DType destination);

/// The pairs that copy_ranges() takes.
[[nodiscard]] std::vector<std::pair<DType, DType>> copied_pairs();

/// Random bits, so that floats include NaNs, infinities and subnormals; half of them near 1, so that sums round.
[[nodiscard]] Bytes random_elements(DType dtype, std::size_t count, std::mt19937_64& random);

/// Every op with every dtype that has it.
[[nodiscard]] std::vector<std::tuple<ReduceOp, DType>> all_reductions();

}  // namespace crossdevice::testing
