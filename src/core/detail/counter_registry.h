// SPDX-License-Identifier: Apache-2.0
/// Which counters there are, for who reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/counter.h"

namespace crossdevice::detail {

struct CounterEntry {
  const char* name = "";
  const char* labels = "";
  const char* help = "";
  Counter::Unit unit = Counter::Unit::ONE;
};

/// By index.
[[nodiscard]] std::span<const CounterEntry> counter_entries() noexcept;
[[nodiscard]] std::uint64_t sum_of_cells(std::size_t index) noexcept;

}  // namespace crossdevice::detail
