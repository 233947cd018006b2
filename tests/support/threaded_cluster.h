// SPDX-License-Identifier: Apache-2.0
/// Workers that are threads of this process, each with a cluster of its own over loopback, or just with a number.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "crossdevice/comm/callback_cluster_resolver.h"
#include "crossdevice/comm/cluster.h"

namespace crossdevice::testing {

/// Runs `work` for each rank on a thread of its own. What each threw, as text; "" where nothing.
inline std::vector<std::string> run_ranks(std::size_t num_ranks,
                                          const std::function<void(std::size_t rank)>& work) {
  std::vector<std::string> errors(num_ranks);
  std::vector<std::thread> threads;
  threads.reserve(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        if (errors[rank].empty()) errors[rank] = "an exception without text";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

[[nodiscard]] inline std::vector<std::string> no_errors(std::size_t num_ranks) {
  return std::vector<std::string>(num_ranks);
}

/// An all-gather between threads.
class ThreadedAllGather {
 public:
  explicit ThreadedAllGather(std::size_t num_ranks)
      : parts_(num_ranks), barrier_(static_cast<std::ptrdiff_t>(num_ranks)) {}

  void operator()(std::size_t rank, std::span<const std::byte> mine, std::span<std::byte> all) {
    parts_[rank] = mine;
    barrier_.arrive_and_wait();
    for (std::size_t each = 0; each < parts_.size(); ++each) {
      std::copy(parts_[each].begin(), parts_[each].end(),
                all.begin() + static_cast<std::ptrdiff_t>(each * mine.size()));
    }
    barrier_.arrive_and_wait();
  }

 private:
  std::vector<std::span<const std::byte>> parts_;
  std::barrier<> barrier_;
};

/// The same as run_ranks(), each rank in a cluster of all.
inline std::vector<std::string> run_clusters(
    std::size_t num_ranks, const std::function<void(const std::shared_ptr<Cluster>&)>& work,
    const JoinOptions& options = {.timeout_seconds = 60}) {
  ThreadedAllGather gather(num_ranks);
  return run_ranks(num_ranks, [&](std::size_t rank) {
    const CallbackClusterResolver resolver(
        static_cast<int>(rank), static_cast<int>(num_ranks),
        [&gather, rank](std::span<const std::byte> mine, std::span<std::byte> all) {
          gather(rank, mine, all);
        });
    work(Cluster::join(resolver, options));
  });
}

}  // namespace crossdevice::testing
