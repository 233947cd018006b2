// SPDX-License-Identifier: Apache-2.0
/// Ranks are threads over an in-process transport.
#include "collective/detail/recursive_doubling.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/error.h"

#include "support/sanitizers.h"

namespace crossdevice {
namespace {

using detail::DoublingRow;
using detail::RecursiveDoubling;

constexpr double kPatience = 60;

/// Runs `work` on every rank, connected as for a barrier: what is sent elsewhere is an error.
std::vector<std::string> run(std::size_t n, const std::function<void(Transport&)>& work) {
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(n));
  std::vector<std::string> errors(n);
  {
    std::vector<std::jthread> ranks;
    ranks.reserve(n);
    for (std::size_t rank = 0; rank < n; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          Transport& transport = *transports[rank];
          std::vector<int> peers;
          for (std::size_t distance = 1; distance < n; distance *= 2) {
            peers.push_back(static_cast<int>((rank + distance) % n));
            peers.push_back(static_cast<int>((rank + n - distance) % n));
          }
          transport.connect(peers, Deadline::after_timeout_seconds(kPatience));
          transport.begin({.kind = "test"});
          work(transport);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  return errors;
}

/// All up to 64; where many threads take long, some of them.
std::vector<std::size_t> numbers_of_ranks() {
  if (testing::kIsSanitized) return {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 64};
  std::vector<std::size_t> all(64);
  std::iota(all.begin(), all.end(), std::size_t{1});
  return all;
}

class RecursiveDoublingTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  /// ((0 + 1) + (2 + 3)) + ..., with what is beyond the power of two added to the first ones before.
  template <class T, class Combine>
  static T in_order(std::vector<T> values, Combine combine) {
    const std::size_t core = halving_doubling_core(values.size());
    for (std::size_t extra = core; extra < values.size(); ++extra) {
      values[extra - core] = combine(values[extra - core], values[extra]);
    }
    for (std::size_t distance = 1; distance < core; distance *= 2) {
      for (std::size_t i = 0; i < core; i += 2 * distance) {
        values[i] = combine(values[i], values[i + distance]);
      }
    }
    return values[0];
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, RecursiveDoublingTest, ::testing::ValuesIn(numbers_of_ranks()));

/// Of a magnitude that makes every order give other bits.
float term(std::size_t rank, std::size_t i) {
  return static_cast<float>(1 + rank * rank) / static_cast<float>(3 + i + rank) *
         (rank % 2 == 0 ? 1e4F : 1.0F);
}

TEST_P(RecursiveDoublingTest, AllRanksHaveTheBitsOfOneOrder) {
  const std::size_t n = GetParam();
  std::vector<float> expected(37);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<float> terms(n);
    for (std::size_t rank = 0; rank < n; ++rank) terms[rank] = term(rank, i);
    expected[i] = in_order(terms, [](float a, float b) { return a + b; });
  }
  EXPECT_THAT(run(n,
                  [&](Transport& transport) {
                    RecursiveDoubling doubling(transport);
                    for (int repetition = 0; repetition < 3; ++repetition) {
                      std::vector<float> row(expected.size());
                      for (std::size_t i = 0; i < row.size(); ++i) {
                        row[i] = term(static_cast<std::size_t>(transport.rank()), i);
                      }
                      doubling.run({.num_elements = row.size(),
                                    .elements = reinterpret_cast<std::byte*>(row.data())},
                                   Deadline::after_timeout_seconds(kPatience));
                      EXPECT_EQ(row, expected) << "rank " << transport.rank();
                    }
                  }),
              ::testing::Each(""));
}

TEST_P(RecursiveDoublingTest, MeansExtremesAndNothing) {
  const std::size_t n = GetParam();
  EXPECT_THAT(run(n,
                  [&](Transport& transport) {
                    RecursiveDoubling doubling(transport);
                    const Deadline deadline = Deadline::after_timeout_seconds(kPatience);
                    std::vector<double> means(5, 2.0 * transport.rank());
                    doubling.run({.op = ReduceOp::MEAN,
                                  .dtype = DType::FLOAT64,
                                  .num_elements = means.size(),
                                  .elements = reinterpret_cast<std::byte*>(means.data()),
                                  .divisor = static_cast<double>(n)},
                                 deadline);
                    EXPECT_THAT(means, ::testing::Each(static_cast<double>(n - 1)));
                    std::vector<std::int16_t> largest(3,
                                                      static_cast<std::int16_t>(transport.rank()));
                    doubling.run({.op = ReduceOp::MAX,
                                  .dtype = DType::INT16,
                                  .num_elements = largest.size(),
                                  .elements = reinterpret_cast<std::byte*>(largest.data())},
                                 deadline);
                    EXPECT_THAT(largest, ::testing::Each(static_cast<std::int16_t>(n - 1)));
                    doubling.run({}, deadline);
                  }),
              ::testing::Each(""));
}

TEST(RecursiveDoubling, WhoDoesNotComeIsWaitedForUntilTheDeadline) {
  for (const std::size_t n : {2U, 3U, 5U}) {
    const std::vector<std::string> errors = run(n, [&](Transport& transport) {
      if (transport.rank() == 0) {
        transport.look_until(Deadline::after_timeout_seconds(kPatience));
        return;
      }
      float row = 1;
      RecursiveDoubling(transport).run(
          {.num_elements = 1, .elements = reinterpret_cast<std::byte*>(&row)},
          Deadline::after_timeout_seconds(0.1));
    });
    EXPECT_THAT(errors, ::testing::Contains(::testing::HasSubstr("timed out"))) << n << " ranks";
  }
}

}  // namespace
}  // namespace crossdevice
