// SPDX-License-Identifier: Apache-2.0
/// Reads arrays of bytes in the idx format (the format of MNIST and its successors), compressed with gzip or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace crossdevice::train {

/// `bytes` in row-major order; as many as the product of `dims`.
struct IdxArray {
  std::vector<std::size_t> dims;
  std::vector<std::uint8_t> bytes;
};

/// Errors   std::runtime_error: the file cannot be opened, is no idx file of unsigned bytes, is damaged, ends early or goes on behind
///          its data; names the file.
[[nodiscard]] IdxArray read_idx_file(const std::filesystem::path& path);

}  // namespace crossdevice::train
