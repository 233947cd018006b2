// SPDX-License-Identifier: Apache-2.0
// The bodies of the CUDA kernels, whole grids of them, run on the host: bit by bit what the host kernels give.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/small_floats.h"
#include "crossdevice/device/kernel_api.h"

#include "device/cuda/copy_plan.h"
#include "device/cuda/reduce_plan.h"
#include "device/kernel_cases.h"
#include "support/sanitizers.h"

namespace crossdevice {
namespace {

using testing::Bytes;

/// The sanitizer sees accesses behind the end; without it guards do.
constexpr std::size_t kGuardBytes = testing::kIsSanitized ? 0 : 64;
constexpr std::byte kGuard{0x5A};

class HostMemory : public testing::KernelMemory {
 public:
  void* make(const Bytes& contents, std::size_t misalignment) override {
    misalignment %= 256;
    Block block{.bytes = static_cast<std::byte*>(::operator new (
                    misalignment + contents.size() + kGuardBytes, std::align_val_t{256})),
                .offset = misalignment,
                .size = contents.size()};
    std::fill_n(block.bytes, misalignment, kGuard);
    std::copy(contents.begin(), contents.end(), block.bytes + misalignment);
    std::fill_n(block.bytes + misalignment + contents.size(), kGuardBytes, kGuard);
    blocks_.push_back(block);
    return block.bytes + misalignment;
  }
  Bytes read(const void* pointer, std::size_t size_bytes) override {
    const auto* const from = static_cast<const std::byte*>(pointer);
    return {from, from + size_bytes};
  }
  bool guards_are_intact() override {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      const std::byte* const behind = block.bytes + block.offset + block.size;
      return std::all_of(block.bytes, block.bytes + block.offset, is_guard) &&
             std::all_of(behind, behind + kGuardBytes, is_guard);
    });
  }
  void clear() override {
    for (const Block& block : blocks_) ::operator delete (block.bytes, std::align_val_t{256});
    blocks_.clear();
  }
  [[nodiscard]] detail::CudaStream stream() const override { return nullptr; }
  ~HostMemory() override { HostMemory::clear(); }

 private:
  struct Block {
    std::byte* bytes;
    std::size_t offset;
    std::size_t size;
  };
  std::vector<Block> blocks_;
};

/// Runs every thread of every block of a grid of at most max_blocks blocks, the last block first.
struct HostGrid {
  std::uint32_t max_blocks;

  template <class Rule, class Shape>
  int run(const cuda::ReduceArguments& arguments) const {
    const std::uint32_t blocks = std::min(max_blocks, cuda::blocks_for<Shape>(arguments));
    for (std::uint32_t block = blocks; block-- > 0;) {
      for (std::uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread)
        cuda::reduce_thread<Rule, Shape>(arguments, block, blocks, thread);
    }
    return 0;
  }
  template <class Rule, class Shape>
  int run(const cuda::ManyReduceArguments& arguments) const {
    const std::uint32_t blocks = std::min(max_blocks, arguments.num_tiles);
    for (std::uint32_t block = blocks; block-- > 0;) {
      for (std::uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread)
        cuda::reduce_many_thread<Rule, Shape>(arguments, block, blocks, thread);
    }
    return 0;
  }
  template <class Copier, class Arguments>
  int run(const Arguments& arguments) const {
    const std::uint32_t blocks = std::min(max_blocks, arguments.num_tiles);
    for (std::uint32_t block = blocks; block-- > 0;) {
      for (std::uint32_t thread = 0; thread < cuda::kBlockThreads; ++thread)
        cuda::copy_thread<Copier>(arguments, block, blocks, thread);
    }
    return 0;
  }
};

class HostRunKernels : public detail::KernelApi {
 public:
  explicit HostRunKernels(std::uint32_t max_blocks) : grid_{max_blocks} {}

  detail::CudaStatus reduce(const detail::ReduceLaunch& launch) override {
    cuda::ReducePlan plan;
    cuda::plan_reduce(launch, plan);
    return static_cast<detail::CudaStatus>(run(plan));
  }
  detail::CudaStatus reduce_many(const detail::ManyReduceLaunch& launch,
                                 bool& has_launched) override {
    cuda::ReducePlan plan;
    cuda::plan_reduce(launch, plan);
    const auto status = static_cast<detail::CudaStatus>(run(plan));
    has_launched = plan.has_launched;
    return status;
  }
  detail::CudaStatus copy_ranges(const detail::CopyLaunch& launch) override {
    return static_cast<detail::CudaStatus>(
        cuda::copies_bits(launch) ? cuda::run_byte_copies(launch, grid_) : run_conversions(launch));
  }

 private:
  [[nodiscard]] int run(cuda::ReducePlan& plan) const {
    const bool is_complex_product = plan.rule == cuda::RuleKind::COMPLEX_PRODUCT;
    switch (plan.element) {
      case cuda::ElementKind::FLOAT8_E4M3:
        return cuda::run_float_rule<cuda::Float8E4M3>(plan, grid_);
      case cuda::ElementKind::FLOAT8_E5M2:
        return cuda::run_float_rule<cuda::Float8E5M2>(plan, grid_);
      case cuda::ElementKind::FLOAT16:
        return cuda::run_float_rule<cuda::Float16>(plan, grid_);
      case cuda::ElementKind::BFLOAT16:
        return cuda::run_float_rule<cuda::BFloat16>(plan, grid_);
      case cuda::ElementKind::FLOAT32:
        if (is_complex_product) return cuda::run_shape<cuda::ComplexProduct<float>>(plan, grid_);
        return cuda::run_float_rule<cuda::Float32>(plan, grid_);
      case cuda::ElementKind::FLOAT64:
        if (is_complex_product) return cuda::run_shape<cuda::ComplexProduct<double>>(plan, grid_);
        return cuda::run_float_rule<cuda::Float64>(plan, grid_);
      case cuda::ElementKind::BITS8:
        return cuda::run_integer_rule<std::uint8_t>(plan, grid_);
      case cuda::ElementKind::BITS16:
        return cuda::run_integer_rule<std::uint16_t>(plan, grid_);
      case cuda::ElementKind::BITS32:
        return cuda::run_integer_rule<std::uint32_t>(plan, grid_);
      case cuda::ElementKind::BITS64:
        break;
    }
    return cuda::run_integer_rule<std::uint64_t>(plan, grid_);
  }
  [[nodiscard]] int run_conversions(const detail::CopyLaunch& launch) const {
    switch (cuda::float_kind(launch.source_dtype)) {
      case cuda::ElementKind::FLOAT8_E4M3:
        return cuda::run_conversions_from<cuda::Float8E4M3>(launch, grid_);
      case cuda::ElementKind::FLOAT8_E5M2:
        return cuda::run_conversions_from<cuda::Float8E5M2>(launch, grid_);
      case cuda::ElementKind::FLOAT16:
        return cuda::run_conversions_from<cuda::Float16>(launch, grid_);
      case cuda::ElementKind::BFLOAT16:
        return cuda::run_conversions_from<cuda::BFloat16>(launch, grid_);
      case cuda::ElementKind::FLOAT64:
        return cuda::run_conversions_from<cuda::Float64>(launch, grid_);
      case cuda::ElementKind::FLOAT32:
      case cuda::ElementKind::BITS8:
      case cuda::ElementKind::BITS16:
      case cuda::ElementKind::BITS32:
      case cuda::ElementKind::BITS64:
        break;
    }
    return cuda::run_conversions_from<cuda::Float32>(launch, grid_);
  }

  HostGrid grid_;
};

constexpr std::uint32_t kAnyNumber = std::numeric_limits<std::uint32_t>::max();

class ReduceBodiesTest : public ::testing::TestWithParam<std::tuple<ReduceOp, DType>> {
 protected:
  HostMemory memory_;
};

TEST_P(ReduceBodiesTest, GiveTheBitsOfTheHostKernels) {
  const auto [op, dtype] = GetParam();
  HostRunKernels kernels(kAnyNumber);
  testing::check_all_reductions(memory_, kernels, op, dtype);
}

TEST_P(ReduceBodiesTest, GoOverTilesInStrides) {
  const auto [op, dtype] = GetParam();
  std::mt19937_64 random(3);
  for (const std::uint32_t max_blocks : {1U, 2U, 3U}) {
    HostRunKernels kernels(max_blocks);
    for (const std::size_t more_misalignment : {0U, 1U}) {
      testing::check_reduce(memory_, kernels,
                            {.op = op,
                             .dtype = dtype,
                             .num_inputs = 2,
                             .count = 7 * 16384 / size_in_bytes(dtype) + 5,
                             .more_misalignment = more_misalignment},
                            random);
    }
  }
}

TEST_P(ReduceBodiesTest, GiveManyTensorsTheBitsOfEach) {
  const auto [op, dtype] = GetParam();
  for (const std::uint32_t max_blocks : {kAnyNumber, 3U}) {
    HostRunKernels kernels(max_blocks);
    testing::check_all_reductions_of_many(memory_, kernels, op, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOpAndDType, ReduceBodiesTest,
                         ::testing::ValuesIn(testing::all_reductions()), [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

class CopyBodiesTest : public ::testing::TestWithParam<std::pair<DType, DType>> {
 protected:
  HostMemory memory_;
};

TEST_P(CopyBodiesTest, ConvertWithOneRounding) {
  const auto [source, destination] = GetParam();
  HostRunKernels kernels(kAnyNumber);
  testing::check_all_copies(memory_, kernels, source, destination);
}

INSTANTIATE_TEST_SUITE_P(EveryPair, CopyBodiesTest, ::testing::ValuesIn(testing::copied_pairs()),
                         [](const auto& test) {
                           return std::string(to_string(test.param.first)) + "_to_" +
                                  std::string(to_string(test.param.second));
                         });

TEST(CopyBodiesTest, AsManyRangesAsALaunchTakesAndMore) {
  HostMemory memory;
  std::mt19937_64 random(5);
  for (const std::uint32_t max_blocks : {kAnyNumber, 7U}) {
    HostRunKernels kernels(max_blocks);
    for (const std::size_t num_ranges : {127U, 128U, 129U, 999U, 1000U, 1001U, 2500U}) {
      for (const DType destination : {DType::FLOAT32, DType::BFLOAT16}) {
        testing::CopyCase c{.source = DType::FLOAT32,
                            .destination = destination,
                            .counts = {},
                            .source_misalignment = 1,
                            .destination_misalignment = 3};
        for (std::size_t r = 0; r < num_ranges; ++r) c.counts.push_back(r % 37 == 5 ? 0 : r % 61);
        c.counts[num_ranges / 2] = 40000;
        testing::check_copy(memory, kernels, c, random);
      }
    }
  }
}

/// Notes how many tensors each launch has; refuses one.
struct CountingGrid {
  std::size_t refused = ~std::size_t{0};  // number of the launch
  std::vector<std::uint32_t> launches{};

  template <class Rule, class Shape>
  int run(const cuda::ReduceArguments& /*arguments*/) {
    return note(1);
  }
  template <class Rule, class Shape>
  int run(const cuda::ManyReduceArguments& arguments) {
    return note(arguments.num_ranges);
  }
  int note(std::uint32_t num_tensors) {
    if (launches.size() == refused) return 98;
    launches.push_back(num_tensors);
    return 0;
  }
};

/// `counts` elements of float32 in num_inputs buffers and one; buffer k is k times `misalignment` bytes away from a multiple of 16.
struct ManyTensors {
  ManyTensors(std::vector<std::size_t> of_each, std::size_t num_inputs, std::size_t misalignment)
      : counts(std::move(of_each)) {
    for (std::size_t t = 0; t < counts.size(); ++t) {
      for (std::size_t k = 0; k <= num_inputs; ++k)
        buffers.push_back(reinterpret_cast<void*>(4096 + k * misalignment));
    }
    launch = {.op = ReduceOp::SUM,
              .dtype = DType::FLOAT32,
              .num_inputs = num_inputs,
              .num_outputs = 1,
              .buffers = buffers,
              .num_elements = counts};
    cuda::plan_reduce(launch, plan);
  }
  ManyTensors(const ManyTensors&) = delete;
  ManyTensors& operator=(const ManyTensors&) = delete;

  std::vector<std::size_t> counts;
  std::vector<void*> buffers;
  detail::ManyReduceLaunch launch;
  cuda::ReducePlan plan;  // points to it
};

using Launches = std::vector<std::uint32_t>;

Launches launches_for(const std::vector<std::size_t>& counts, std::size_t num_inputs,
                      std::size_t misalignment = 0) {
  ManyTensors tensors(counts, num_inputs, misalignment);
  CountingGrid grid;
  EXPECT_EQ(cuda::run_float_rule<cuda::Float32>(tensors.plan, grid), 0);
  EXPECT_EQ(tensors.plan.has_launched, !grid.launches.empty());
  return grid.launches;
}

TEST(ManyReduceTest, AsManyTensorsShareALaunchAsItsArgumentTakes) {
  const auto equal = [](std::size_t number) { return std::vector<std::size_t>(number, 100); };
  EXPECT_EQ(launches_for({}, 2), Launches());
  EXPECT_EQ(launches_for({0, 0}, 2), Launches());
  EXPECT_EQ(launches_for({0, 5, 0, 7}, 2), Launches({2}));
  EXPECT_EQ(launches_for(equal(56), 2), Launches({56}));
  EXPECT_EQ(launches_for(equal(57), 2), Launches({56, 1}));
  EXPECT_EQ(launches_for(equal(161), 7), Launches({56, 56, 49}));  // 8 pointers each
  EXPECT_EQ(launches_for(equal(56), 8), Launches({49, 7}));        // 9 pointers each
  EXPECT_EQ(launches_for(equal(10), 64), Launches({6, 4}));
  constexpr std::size_t kLargest = (std::size_t{16} << 20) / sizeof(float);
  EXPECT_EQ(launches_for({1, kLargest, 1}, 2), Launches({3}));
  EXPECT_EQ(launches_for({1, kLargest + 1, 1}, 2), Launches({1, 2}));
  // Of those that are not aligned alike, the ones that are too short for vectors share.
  EXPECT_EQ(launches_for({100, 1, 7, 8}, 2, 4), Launches({1, 1, 2}));
}

TEST(ManyReduceTest, ARefusedLaunchIsTheLastAndItIsKnownWhetherAnyWentOut) {
  constexpr std::size_t kAlone = std::size_t{5} << 20;
  const std::vector<std::vector<std::size_t>> lists{
      std::vector<std::size_t>(100, 9), {kAlone, kAlone, 3}, {3, kAlone, kAlone}};
  for (const std::vector<std::size_t>& counts : lists) {
    const std::size_t all = launches_for(counts, 2).size();
    for (std::size_t refused = 0; refused < all; ++refused) {
      ManyTensors tensors(counts, 2, 0);
      CountingGrid grid{.refused = refused};
      EXPECT_EQ(cuda::run_float_rule<cuda::Float32>(tensors.plan, grid), 98);
      EXPECT_EQ(grid.launches.size(), refused);
      EXPECT_EQ(tensors.plan.has_launched, refused > 0);
    }
  }
}

TEST(CopyBodiesTest, NothingToDoIsNoLaunch) {
  HostRunKernels kernels(kAnyNumber);
  float same = 1;
  const detail::CopyRange ranges[] = {{nullptr, nullptr, 0}, {&same, &same, 1}};
  EXPECT_EQ(kernels.copy_ranges({}), detail::CudaStatus::SUCCESS);
  EXPECT_EQ(kernels.copy_ranges({.ranges = ranges}), detail::CudaStatus::SUCCESS);
}

// ---- conversions, every pattern

template <class Format, class T, class Bits>
void expect_every_pattern_widened(const char* name) {
  for (std::uint32_t i = 0; i < 1U << (8 * sizeof(Bits)); ++i) {
    T element;
    element.bits = static_cast<Bits>(i);
    const float expected = static_cast<float>(element);
    const float actual = Format::widen(element.bits);
    if (expected != expected) {
      ASSERT_NE(actual, actual) << name << " " << i;
    } else {
      ASSERT_EQ(cuda::bits_as<std::uint32_t>(actual), cuda::bits_as<std::uint32_t>(expected))
          << name << " " << i;
      ASSERT_EQ(Format::narrow(actual), element.bits) << name << " " << i;
      ASSERT_EQ(Format::narrow(static_cast<double>(actual)), element.bits) << name << " " << i;
    }
  }
}

TEST(ElementFormatsTest, WidenEveryPatternExactlyAndComeBack) {
  expect_every_pattern_widened<cuda::Float16, float16, std::uint16_t>("float16");
  expect_every_pattern_widened<cuda::BFloat16, bfloat16, std::uint16_t>("bfloat16");
  expect_every_pattern_widened<cuda::Float8E4M3, float8_e4m3, std::uint8_t>("float8_e4m3");
  expect_every_pattern_widened<cuda::Float8E5M2, float8_e5m2, std::uint8_t>("float8_e5m2");
}

TEST(ElementFormatsTest, NarrowEveryFloatAsTheScalarConversionsDo) {
  // Every exponent, and the significands around each place where a type rounds.
  for (std::uint32_t i = 0; i < 1U << 20; ++i) {
    const std::uint32_t low = i & 7U;
    const std::uint32_t bits = (i >> 3) << 15 | (low < 4    ? low
                                                 : low == 4 ? 0x4000U
                                                 : low == 5 ? 0x3FFFU
                                                 : low == 6 ? 0x4001U
                                                            : 0x7FFFU);
    const float value = cuda::bits_as<float>(bits);
    if (value != value) continue;
    ASSERT_EQ(cuda::Float16::narrow(value), float16(value).bits) << bits;
    ASSERT_EQ(cuda::BFloat16::narrow(value), bfloat16(value).bits) << bits;
    ASSERT_EQ(cuda::Float8E5M2::narrow(value), float8_e5m2(value).bits) << bits;
    const std::uint8_t expected = float8_e4m3(value).bits;
    ASSERT_EQ(cuda::Float8E4M3::narrow(value), (expected & 0x7F) == 0x7F ? 0x7F : expected) << bits;
  }
}

}  // namespace
}  // namespace crossdevice
