// SPDX-License-Identifier: Apache-2.0
// The cases, what is expected of them, and how that is compared.
#include "device/kernel_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include "crossdevice/core/small_floats.h"
#include "crossdevice/device/reduce_kernel.h"

#include "support/reference.h"

namespace crossdevice::testing {
namespace {

std::size_t component_bytes(DType dtype) {
  return size_in_bytes(dtype) / (is_complex(dtype) ? 2 : 1);
}

/// Bytes where both differ first, or the empty string.
std::string difference(const Bytes& actual, const Bytes& expected, std::size_t element_bytes) {
  if (actual == expected) return "";
  for (std::size_t b = 0; b < expected.size(); ++b) {
    if (actual[b] == expected[b]) continue;
    const std::size_t i = b / element_bytes;
    std::string text = "element " + std::to_string(i) + ": got";
    for (std::size_t e = element_bytes; e-- > 0;)
      text += " " + std::to_string(std::to_integer<int>(actual[i * element_bytes + e]));
    text += ", expected";
    for (std::size_t e = element_bytes; e-- > 0;)
      text += " " + std::to_string(std::to_integer<int>(expected[i * element_bytes + e]));
    return text;
  }
  return "sizes differ";
}

std::string to_string(const ReduceCase& c) {
  return std::string(crossdevice::to_string(c.op)) + " of " +
         std::string(crossdevice::to_string(c.dtype)) + ", " + std::to_string(c.num_inputs) +
         " inputs, " + std::to_string(c.num_outputs) + " outputs, " + std::to_string(c.count) +
         " elements, first group " + std::to_string(c.first_group) + ", misalignment " +
         std::to_string(c.misalignment) + " + k " + std::to_string(c.more_misalignment) +
         (c.in_place ? ", in place" : "");
}

std::string to_string(const CopyCase& c) {
  return std::string(crossdevice::to_string(c.source)) + " to " +
         std::string(crossdevice::to_string(c.destination)) + ", divided by " +
         std::to_string(c.divisor) + ", " + std::to_string(c.counts.size()) + " ranges from " +
         std::to_string(c.counts.empty() ? 0 : c.counts.front()) + " elements on, misalignments " +
         std::to_string(c.source_misalignment) + " and " +
         std::to_string(c.destination_misalignment) + (c.in_place ? ", in place" : "");
}

// ---- conversions with one rounding, the slow way

/// A small type, by the bits of its magnitude: the largest magnitude's number, and what stands behind it.
template <class T, class Bits, unsigned kBehind>
struct SmallType {
  using Storage = T;
  static constexpr unsigned kFirstBehind = kBehind;  ///< infinity, or e4m3's NaN, as a magnitude
  static double value_of(unsigned magnitude) {
    if (magnitude < kBehind) {
      T element;
      element.bits = static_cast<Bits>(magnitude);
      return static_cast<double>(static_cast<float>(element));
    }
    return 2 * value_of(kBehind - 1) - value_of(kBehind - 2);  // the number that would follow
  }
};

template <class Small>
typename Small::Storage round_small(double value, unsigned quiet_nan) {
  typename Small::Storage result;
  using Bits = decltype(result.bits);
  if (std::isnan(value)) {
    result.bits = static_cast<Bits>(quiet_nan);
    return result;
  }
  const double magnitude = std::fabs(value);
  unsigned low = 0;
  unsigned high = Small::kFirstBehind;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (Small::value_of(middle) <= magnitude ? low : high) = middle;
  }
  // Twice the distances, which double holds exactly here, except where they cannot matter.
  const double to_low = magnitude - Small::value_of(low);
  const double to_high = Small::value_of(high) - magnitude;
  const bool goes_up = to_high < to_low || (to_high == to_low && high % 2 == 0);
  const unsigned chosen = goes_up ? high : low;
  constexpr unsigned kSign = 1U << (8 * sizeof(Bits) - 1);
  if (chosen == 0x7F && sizeof(Bits) == 1 && Small::kFirstBehind == 0x7F) {
    result.bits = 0x7F;
  } else {
    result.bits = static_cast<Bits>(chosen | (std::signbit(value) ? kSign : 0U));
  }
  return result;
}

template <class T>
double number_of(const std::byte* from) {
  T element;
  std::memcpy(&element, from, sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    return element;
  } else {
    return static_cast<float>(element);
  }
}

double number_of(DType dtype, const std::byte* from) {
  if (dtype == DType::FLOAT64) return number_of<double>(from);
  if (dtype == DType::FLOAT32) return number_of<float>(from);
  if (dtype == DType::FLOAT16) return number_of<float16>(from);
  if (dtype == DType::BFLOAT16) return number_of<bfloat16>(from);
  if (dtype == DType::FLOAT8_E4M3) return number_of<float8_e4m3>(from);
  return number_of<float8_e5m2>(from);
}

template <class T>
void put(std::byte* to, T element) {
  std::memcpy(to, &element, sizeof(T));
}

void round_to(DType dtype, double value, std::byte* to) {
  if (dtype == DType::FLOAT64)
    return put(to, std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
  if (dtype == DType::FLOAT32) {
    return put(to, std::isnan(value) ? std::numeric_limits<float>::quiet_NaN()
                                     : static_cast<float>(value));
  }
  if (dtype == DType::FLOAT16)
    return put(to, round_small<SmallType<float16, std::uint16_t, 0x7C00>>(value, 0x7E00));
  if (dtype == DType::BFLOAT16)
    return put(to, round_small<SmallType<bfloat16, std::uint16_t, 0x7F80>>(value, 0x7FC0));
  if (dtype == DType::FLOAT8_E4M3)
    return put(to, round_small<SmallType<float8_e4m3, std::uint8_t, 0x7F>>(value, 0x7F));
  put(to, round_small<SmallType<float8_e5m2, std::uint8_t, 0x7C>>(value, 0x7E));
}

/// What a range becomes.
Bytes converted(const CopyCase& c, const Bytes& source) {
  if (c.source == c.destination) {
    Bytes result = source;
    if (c.divisor != 1)
      divide_elements(c.source, result.data(), source.size() / size_in_bytes(c.source), c.divisor);
    return result;
  }
  const std::size_t count = source.size() / size_in_bytes(c.source);
  Bytes result(count * size_in_bytes(c.destination));
  for (std::size_t i = 0; i < count; ++i) {
    double value = number_of(c.source, source.data() + i * size_in_bytes(c.source));
    if (c.divisor != 1 && c.source == DType::FLOAT64) value /= c.divisor;
    if (c.divisor != 1 && c.source != DType::FLOAT64)
      value = static_cast<float>(value) / static_cast<float>(c.divisor);
    round_to(c.destination, value, result.data() + i * size_in_bytes(c.destination));
  }
  return result;
}

}  // namespace

Bytes random_elements(DType dtype, std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count * size_in_bytes(dtype));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<double> near_one(-2.0, 2.0);
  const double infinity = std::numeric_limits<double>::infinity();
  // What rounds, overflows and underflows in one type or another, on its own and added to itself.
  const double special[] = {0.0,     -0.0,    infinity, -infinity,    448.0,   464.0,    465.0,
                            57344.0, 61440.0, 65504.,   65520.,       3.3e38,  3.4e38,   1e-45,
                            1.2e-38, 6e-8,    0.002,    0.0009765625, 1e-310,  1e308,    0x1p-9,
                            0x1p-10, 0x1p-16, 0x1p-17,  0x1p-24,      0x1p-25, 0x1p-133, 0x1p-134};
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const at = bytes.data() + i * size_in_bytes(dtype);
    if (dtype == DType::BOOL) *at &= std::byte{1};
    if (!is_floating(dtype) && !is_complex(dtype)) continue;
    const std::size_t choice = random() % 8;
    if (choice < 3) continue;
    double value = near_one(random);
    if (choice == 3) value = special[random() % std::size(special)] * (random() % 2 == 0 ? 1 : -1);
    const auto single = static_cast<float>(value);
    if (dtype == DType::FLOAT64) put(at, value);
    if (dtype == DType::FLOAT32) put(at, single);
    if (dtype == DType::FLOAT16) put(at, float16(single));
    if (dtype == DType::BFLOAT16) put(at, bfloat16(single));
    if (dtype == DType::FLOAT8_E4M3) put(at, float8_e4m3(single));
    if (dtype == DType::FLOAT8_E5M2) put(at, float8_e5m2(single));
    if (dtype == DType::COMPLEX64) put(at, std::complex<float>(single, 0.7F));
    if (dtype == DType::COMPLEX128) put(at, std::complex<double>(0.3, value));
  }
  return bytes;
}

/// A tensor's buffers where the kernels work, and what is to be there.
class ReducedTensor {
 public:
  ReducedTensor(KernelMemory& memory, const ReduceCase& c, std::mt19937_64& random)
      : case_(c), result_(result_dtype(c.op, c.dtype)) {
    const auto offset = [&](DType dtype, std::size_t k) {
      return (c.misalignment + k * c.more_misalignment) * component_bytes(dtype);
    };
    std::vector<const void*> host_inputs;
    for (std::size_t k = 0; k < c.num_inputs; ++k) {
      contents_.push_back(random_elements(c.dtype, c.count, random));
      inputs.push_back(memory.make(contents_.back(), offset(c.dtype, k)));
    }
    for (const Bytes& bytes : contents_) host_inputs.push_back(bytes.data());
    const std::size_t result_bytes = c.count * size_in_bytes(result_);
    for (std::size_t j = 0; j < c.num_outputs; ++j) {
      outputs.push_back(c.in_place ? const_cast<void*>(inputs[c.num_inputs - 1 - j])
                                   : memory.make(Bytes(result_bytes, std::byte{0xA5}),
                                                 offset(result_, c.num_inputs + j)));
    }
    expected_.resize(result_bytes);
    void* const expected_output[] = {expected_.data()};
    find_reduce_kernel(c.op, c.dtype)(
        {c.op, c.dtype, host_inputs, expected_output, c.first_group, StoreMode::CACHED}, 0,
        c.count);
  }

  void check(KernelMemory& memory) const {
    SCOPED_TRACE(to_string(case_));
    for (const void* const output : outputs) {
      ASSERT_EQ(
          difference(memory.read(output, expected_.size()), expected_, size_in_bytes(result_)), "");
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (std::find(outputs.begin(), outputs.end(), inputs[k]) != outputs.end()) continue;
      ASSERT_EQ(difference(memory.read(inputs[k], contents_[k].size()), contents_[k], 1), "");
    }
  }

  std::vector<const void*> inputs;
  std::vector<void*> outputs;

 private:
  ReduceCase case_;
  DType result_;
  std::vector<Bytes> contents_;
  Bytes expected_;
};

void check_reduce(KernelMemory& memory, detail::KernelApi& kernels, const ReduceCase& c,
                  std::mt19937_64& random) {
  const ReducedTensor tensor(memory, c, random);
  ASSERT_EQ(kernels.reduce({.op = c.op,
                            .dtype = c.dtype,
                            .inputs = tensor.inputs,
                            .outputs = tensor.outputs,
                            .first_group = c.first_group,
                            .num_elements = c.count,
                            .stream = memory.stream()}),
            detail::CudaStatus::SUCCESS)
      << to_string(c);
  tensor.check(memory);
  ASSERT_TRUE(memory.guards_are_intact()) << to_string(c);
  memory.clear();
}

void check_reduce_many(KernelMemory& memory, detail::KernelApi& kernels, const ReduceCase& c,
                       const std::vector<std::size_t>& counts, std::mt19937_64& random) {
  std::vector<ReducedTensor> tensors;
  std::vector<void*> buffers;
  tensors.reserve(counts.size());
  for (std::size_t t = 0; t < counts.size(); ++t) {
    ReduceCase one = c;
    one.count = counts[t];
    one.misalignment = t * c.misalignment;
    tensors.emplace_back(memory, one, random);
    for (const void* const input : tensors.back().inputs)
      buffers.push_back(const_cast<void*>(input));
    buffers.insert(buffers.end(), tensors.back().outputs.begin(), tensors.back().outputs.end());
  }
  bool has_launched = false;
  ASSERT_EQ(kernels.reduce_many({.op = c.op,
                                 .dtype = c.dtype,
                                 .num_inputs = c.num_inputs,
                                 .num_outputs = c.num_outputs,
                                 .buffers = buffers,
                                 .num_elements = counts,
                                 .first_group = c.first_group,
                                 .stream = memory.stream()},
                                has_launched),
            detail::CudaStatus::SUCCESS)
      << to_string(c);
  ASSERT_TRUE(has_launched);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    SCOPED_TRACE("tensor " + std::to_string(t));
    tensors[t].check(memory);
  }
  ASSERT_TRUE(memory.guards_are_intact()) << to_string(c);
  memory.clear();
}

void check_all_reductions_of_many(KernelMemory& memory, detail::KernelApi& kernels, ReduceOp op,
                                  DType dtype) {
  std::mt19937_64 random(17 + static_cast<unsigned>(dtype));
  const std::size_t width = std::max<std::size_t>(1, 16 / component_bytes(dtype));
  const std::size_t tile = 256 * width;
  // Around vectors, around tiles of one and two vectors for each thread, none, and primes.
  const std::vector<std::size_t> counts{0,         1,    width - 1, width,        width + 1,
                                        2 * width, 1009, 0,         2 * tile + 1, tile - 1,
                                        3,         tile, 4 * tile,  2 * width - 1};
  const auto check = [&](ReduceCase c) {
    c.op = op;
    c.dtype = dtype;
    if (!::testing::Test::HasFatalFailure()) check_reduce_many(memory, kernels, c, counts, random);
  };
  for (const std::size_t n : std::initializer_list<std::size_t>{1, 2, 4, 5, 9}) {
    check({.num_inputs = n});
    check({.num_inputs = n, .num_outputs = 2, .misalignment = 1});
    check({.num_inputs = n, .misalignment = 1, .more_misalignment = 1});
    if (result_dtype(op, dtype) == dtype)
      check({.num_inputs = n, .num_outputs = n, .misalignment = 3, .in_place = true});
    if (n > 2) check({.num_inputs = n, .first_group = n / 2});
  }
}

void check_all_reductions(KernelMemory& memory, detail::KernelApi& kernels, ReduceOp op,
                          DType dtype) {
  std::mt19937_64 random(7 + static_cast<unsigned>(dtype));
  const auto check = [&](const ReduceCase& c) {
    if (!::testing::Test::HasFatalFailure()) check_reduce(memory, kernels, c, random);
  };
  const bool may_be_in_place = result_dtype(op, dtype) == dtype;
  const std::size_t width = std::max<std::size_t>(1, 16 / size_in_bytes(dtype));

  // Every number of inputs and outputs.
  for (const std::size_t n : std::initializer_list<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) {
    for (const std::size_t m : std::initializer_list<std::size_t>{1, 2, n}) {
      check({.op = op, .dtype = dtype, .num_inputs = n, .num_outputs = m, .count = 211});
      if (may_be_in_place && m <= n)
        check({.op = op,
               .dtype = dtype,
               .num_inputs = n,
               .num_outputs = m,
               .count = 173,
               .in_place = true});
    }
  }
  // Every length around vectors and tiles (of 256 times 1, 2 or 4 vectors), and primes.
  std::vector<std::size_t> lengths{
      0,   1,   2,   width - 1, width, width + 1, 2 * width - 1, 2 * width, 2 * width + 1,
      255, 256, 257, 1009};
  for (const std::size_t n : std::initializer_list<std::size_t>{1, 2, 3, 9}) {
    for (const std::size_t count : lengths)
      check({.op = op, .dtype = dtype, .num_inputs = n, .count = count});
  }
  for (const std::size_t steps : std::initializer_list<std::size_t>{1, 2, 4}) {
    const std::size_t tile = 256 * steps * width;
    for (const std::size_t count : {tile - 1, tile, tile + 1, 2 * tile + 101}) {
      for (const std::size_t n : std::initializer_list<std::size_t>{1, 2, 4})
        check({.op = op,
               .dtype = dtype,
               .num_inputs = n,
               .num_outputs = 2,
               .count = count,
               .misalignment = 1});
    }
  }
  // Every alignment, the same for all buffers and not.
  for (std::size_t misalignment = 0; misalignment * component_bytes(dtype) < 16; ++misalignment) {
    for (const std::size_t more : std::initializer_list<std::size_t>{0, 1, 3}) {
      for (const std::size_t n : std::initializer_list<std::size_t>{1, 3, 8}) {
        check({.op = op,
               .dtype = dtype,
               .num_inputs = n,
               .num_outputs = 2,
               .count = 307,
               .misalignment = misalignment,
               .more_misalignment = more});
        if (may_be_in_place) {
          check({.op = op,
                 .dtype = dtype,
                 .num_inputs = n,
                 .count = 5 * width + 3,
                 .misalignment = misalignment,
                 .more_misalignment = more,
                 .in_place = true});
        }
      }
    }
  }
  // Groups, also those that are none.
  for (const std::size_t n : std::initializer_list<std::size_t>{2, 3, 5, 8, 9}) {
    for (std::size_t first_group = 1; first_group <= n + 1; ++first_group) {
      for (const std::size_t more : std::initializer_list<std::size_t>{0, 1})
        check({.op = op,
               .dtype = dtype,
               .num_inputs = n,
               .count = 129,
               .first_group = first_group,
               .more_misalignment = more});
    }
  }
}

void check_copy(KernelMemory& memory, detail::KernelApi& kernels, const CopyCase& c,
                std::mt19937_64& random) {
  SCOPED_TRACE(to_string(c));
  std::vector<detail::CopyRange> ranges;
  std::vector<Bytes> contents;
  for (std::size_t r = 0; r < c.counts.size(); ++r) {
    contents.push_back(random_elements(c.source, c.counts[r], random));
    void* const source =
        memory.make(contents.back(), (r + 1) * c.source_misalignment * component_bytes(c.source));
    const Bytes poison(c.counts[r] * size_in_bytes(c.destination), std::byte{0xA5});
    void* const destination = c.in_place
                                  ? source
                                  : memory.make(poison, (r + 1) * c.destination_misalignment *
                                                            component_bytes(c.destination));
    ranges.push_back({source, destination, c.counts[r]});
  }
  ASSERT_EQ(kernels.copy_ranges({.ranges = ranges,
                                 .source_dtype = c.source,
                                 .destination_dtype = c.destination,
                                 .divisor = c.divisor,
                                 .stream = memory.stream()}),
            detail::CudaStatus::SUCCESS);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const Bytes expected = converted(c, contents[r]);
    ASSERT_EQ(difference(memory.read(ranges[r].destination, expected.size()), expected,
                         size_in_bytes(c.destination)),
              "")
        << "range " << r;
    if (c.in_place) continue;
    ASSERT_EQ(difference(memory.read(ranges[r].source, contents[r].size()), contents[r], 1), "");
  }
  ASSERT_TRUE(memory.guards_are_intact());
  memory.clear();
}

void check_all_copies(KernelMemory& memory, detail::KernelApi& kernels, DType source,
                      DType destination) {
  std::mt19937_64 random(11 + static_cast<unsigned>(source) * 32 +
                         static_cast<unsigned>(destination));
  const auto check = [&](const CopyCase& c) {
    if (!::testing::Test::HasFatalFailure()) check_copy(memory, kernels, c, random);
  };
  const bool may_divide = is_floating(source) || is_complex(source);
  std::vector<double> divisors{1};
  if (may_divide) divisors.insert(divisors.end(), {3, 8, 1.0 / 3});
  const std::size_t width = std::max<std::size_t>(
      1, 16 / std::max(component_bytes(source), component_bytes(destination)));
  const std::size_t tile =
      source == destination ? (std::size_t{16} << 10) / size_in_bytes(source) : 1024 * width;
  for (const double divisor : divisors) {
    CopyCase c{.source = source, .destination = destination, .divisor = divisor};
    c.counts = {0, 1, 2, width - 1, width, width + 1, 2 * width, 255, 256, 257, 1009};
    check(c);
    c.counts = {tile - 1, tile, tile + 1, 0, 1, 2 * tile + 101};
    c.source_misalignment = 1;
    c.destination_misalignment = 1;
    check(c);
    // Range number r is at alignments (r + 1) a and (r + 1) b.
    for (std::size_t a = 0; a < 4; ++a) {
      for (std::size_t b = 0; b < 4; ++b) {
        c.counts.assign(17, 67);
        c.source_misalignment = a;
        c.destination_misalignment = b;
        check(c);
      }
    }
    if (source == destination) {
      c.counts = {1, 40, 1009};
      c.in_place = true;
      check(c);
    }
  }
}

std::vector<std::pair<DType, DType>> copied_pairs() {
  std::vector<std::pair<DType, DType>> pairs;
  for (const DType source : kAllDTypes) {
    for (const DType destination : kAllDTypes) {
      if (source == destination || (is_floating(source) && is_floating(destination)))
        pairs.emplace_back(source, destination);
    }
  }
  return pairs;
}

std::vector<std::tuple<ReduceOp, DType>> all_reductions() {
  std::vector<std::tuple<ReduceOp, DType>> result;
  for (const ReduceOp op : kAllReduceOps) {
    for (const DType dtype : kAllDTypes) {
      if (is_supported(op, dtype)) result.emplace_back(op, dtype);
    }
  }
  return result;
}

}  // namespace crossdevice::testing
