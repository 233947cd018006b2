// SPDX-License-Identifier: Apache-2.0
/// How the calls of several workers differ, in words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// What must be equal of a call besides what its GroupOperation says, one thing each, in one order on all workers: "root 1", "value 3: 1000 float32". Made
/// only where calls differ, since a fingerprint does not say how.
using CallDetails = std::vector<std::string>;

/// A worker's.
struct ToldCall {
  int rank = 0;
  GroupOperation operation;
  CallDetails details{};  ///< empty: nothing is known
};

/// "value 3: 1000 float32"; `size`: how many elements, or what is said in their place.
[[nodiscard]] CROSSDEVICE_EXPORT std::string value_detail(std::size_t index, std::string_view size,
                                                          DType dtype);
[[nodiscard]] CROSSDEVICE_EXPORT bool is_value_detail(std::string_view detail);
/// "workers make different calls: rank 0 reduce #4 SUM of 1 float32 value, 400 bytes, root 0; rank 1 ..., root 1". Of the details those that differ, of values
/// the first that does. Calls of which nothing is known to differ have their fingerprints told.
[[nodiscard]] CROSSDEVICE_EXPORT std::string describe_difference(std::span<const ToldCall> calls);

/// As they travel; what is beyond some 100 KiB does not.
[[nodiscard]] CROSSDEVICE_EXPORT std::string encode_details(const CallDetails& details);
/// What cannot be read is nothing.
[[nodiscard]] CROSSDEVICE_EXPORT CallDetails decode_details(std::string_view bytes);

}  // namespace crossdevice
