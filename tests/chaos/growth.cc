// SPDX-License-Identifier: Apache-2.0
#include "chaos/growth.h"

#include <algorithm>

#include <fmt/format.h>

namespace crossdevice::chaos {

bool Growth::is_due(std::uint64_t call) const {
  return call * 2 >= calls_ && call % std::max<std::uint64_t>(calls_ / 400, 1) == 0;
}

void Growth::note(std::uint64_t call, const Footprint& now) {
  Quarter& quarter = call * 4 < 3 * calls_ ? third_ : last_;
  Footprint& least = quarter.least;
  least.heap_bytes = std::min(least.heap_bytes, now.heap_bytes);
  least.pool_bytes = std::min(least.pool_bytes, now.pool_bytes);
  least.private_bytes = std::min(least.private_bytes, now.private_bytes);
  Footprint& most = quarter.most;
  most.heap_bytes = std::max(most.heap_bytes, now.heap_bytes);
  most.pool_bytes = std::max(most.pool_bytes, now.pool_bytes);
  most.private_bytes = std::max(most.private_bytes, now.private_bytes);
  most.shared_bytes = std::max(most.shared_bytes, now.shared_bytes);
  most.threads = std::max(most.threads, now.threads);
  most.descriptors = std::max(most.descriptors, now.descriptors);
  most.segments = std::max(most.segments, now.segments);
}

std::vector<std::string> Growth::what_grows(const GrowthSlack& slack) const {
  std::vector<std::string> grows;
  const auto compare = [&](const char* what, std::size_t third, std::size_t last,
                           std::size_t more) {
    if (last > third + more) grows.emplace_back(what);
  };
  compare("heap", third_.least.heap_bytes, last_.least.heap_bytes, slack.heap_bytes);
  compare("pools", third_.least.pool_bytes, last_.least.pool_bytes, slack.pool_bytes);
  compare("private memory", third_.least.private_bytes, last_.least.private_bytes,
          slack.private_bytes);
  compare("threads", third_.most.threads, last_.most.threads, 0);
  compare("descriptors", third_.most.descriptors, last_.most.descriptors, 0);
  compare("segments", third_.most.segments, last_.most.segments, slack.segments);
  return grows;
}

std::string Growth::text() const {
  return fmt::format("third quarter {}; last {}", third_.text(), last_.text());
}

std::string Growth::Quarter::text() const {
  constexpr double kKibibyte = 1 << 10;
  constexpr double kMebibyte = 1 << 20;
  const auto kibibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / kKibibyte; };
  const auto mebibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / kMebibyte; };
  return fmt::format(
      "heap {:.0f} to {:.0f} KiB, pools {:.0f} to {:.0f} KiB, private {:.1f} to {:.1f} MiB and at "
      "most {:.1f} of {} segments "
      "of pools, {} threads, {} descriptors",
      kibibytes(least.heap_bytes), kibibytes(most.heap_bytes), kibibytes(least.pool_bytes),
      kibibytes(most.pool_bytes), mebibytes(least.private_bytes), mebibytes(most.private_bytes),
      mebibytes(most.shared_bytes), most.segments, most.threads, most.descriptors);
}

}  // namespace crossdevice::chaos
