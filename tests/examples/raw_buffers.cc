// SPDX-License-Identifier: Apache-2.0
// Memory of your own, as pointers, spans and vectors: reduced where it lies, nothing is copied.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include <crossdevice/crossdevice.h>

namespace cd = crossdevice;
using cd::ReduceOp;

int main() {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kColumns = 5;
  // One gradient, on two logical devices of the host: a matrix behind a pointer, and one in an array.
  const auto ours = std::make_unique<float[]>(kRows * kColumns);
  std::array<float, kRows * kColumns> theirs{};
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    ours[i] = static_cast<float>(i);
    theirs[i] = 100;
  }
  const cd::PerReplica gradient{cd::Tensor::view(ours.get(), {kRows, kColumns}, "CPU:0"),
                                cd::Tensor::view(std::span(theirs), {kRows, kColumns}, "CPU:1")};

  cd::ReductionToOneDevice ops;
  ops.reduce_into(ReduceOp::MEAN, gradient, gradient);  // in place, on both

  // Out of place: the sum, to memory of your own. const memory is read, and can be no destination.
  const std::vector<float> constant(kRows * kColumns, 1.0F);
  std::vector<float> sum(kRows * kColumns);
  const cd::PerReplica sources{cd::Tensor::view(std::span(constant), "CPU:0"),
                               cd::Tensor::view(std::span(constant), "CPU:1")};
  const cd::PerReplica destination{cd::Tensor::view(std::span(sum), "CPU:0")};
  ops.reduce_into(ReduceOp::SUM, sources, destination);

  bool is_right = std::all_of(sum.begin(), sum.end(), [](float x) { return x == 2; });
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    const float mean = (static_cast<float>(i) + 100) / 2;
    is_right = is_right && ours[i] == mean && theirs[i] == mean;
  }
  bool is_refused = false;
  try {
    ops.reduce_into(ReduceOp::SUM, sources, sources);
  } catch (const cd::ValueError& error) {
    std::printf("as it should be: %s\n", error.what());
    is_refused = true;
  }
  return is_right && is_refused ? 0 : 1;
}
