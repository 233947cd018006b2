// SPDX-License-Identifier: Apache-2.0
/// Reads the gradients of a real model: a CSV file with the columns name,shape,numel (bench/workloads has some).
#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/shape.h"

namespace crossdevice::bench {

struct Gradient {
  std::string name;
  Shape shape;  ///< "64x3x7x7" in the file; empty for a scalar
  [[nodiscard]] std::size_t num_elements() const {
    return static_cast<std::size_t>(shape.num_elements());
  }
};

/// `source` names the stream in messages.
///
/// Errors   ArgumentError: another header, a line without three fields, a dimension that is no number, a numel that is not the shape's, no
///          gradients; names the line.
[[nodiscard]] std::vector<Gradient> parse_gradient_list(std::istream& in, std::string_view source);

/// Errors   also ArgumentError: the file cannot be opened.
[[nodiscard]] std::vector<Gradient> read_gradient_list(const std::filesystem::path& path);

}  // namespace crossdevice::bench
