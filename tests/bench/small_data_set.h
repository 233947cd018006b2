// SPDX-License-Identifier: Apache-2.0
/// Small data sets in the idx format, and a directory for them that goes away with the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <zlib.h>

namespace crossdevice::train {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "crossdevice-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_compressed(const std::filesystem::path& path,
                             const std::vector<std::uint8_t>& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("gzopen failed");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

inline std::vector<std::uint8_t> idx_bytes(const std::vector<std::size_t>& dims,
                                           const std::vector<std::uint8_t>& elements) {
  std::vector<std::uint8_t> bytes = {0, 0, 8, static_cast<std::uint8_t>(dims.size())};
  for (const std::size_t dim : dims) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      bytes.push_back(static_cast<std::uint8_t>(dim >> shift));
    }
  }
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

struct SmallDataSet {
  std::size_t num_train = 0;
  std::size_t num_test = 0;
};

/// Images of 4 x 4 pixels: noise, with one bright pixel per class, so that a network can learn them.
inline void write_small_data_set(const std::filesystem::path& directory,
                                 const SmallDataSet& sizes) {
  constexpr std::size_t kPixels = 16;
  std::mt19937 engine(5);
  const auto write_part = [&](const std::string& prefix, std::size_t count) {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    for (std::size_t i = 0; i < count; ++i) {
      const auto label = static_cast<std::uint8_t>(engine() % 10);
      labels.push_back(label);
      for (std::size_t p = 0; p < kPixels; ++p) {
        pixels.push_back(static_cast<std::uint8_t>(engine() % 100 + (p == label ? 120 : 0)));
      }
    }
    write_compressed(directory / (prefix + "-images-idx3-ubyte.gz"),
                     idx_bytes({count, 4, 4}, pixels));
    write_compressed(directory / (prefix + "-labels-idx1-ubyte.gz"), idx_bytes({count}, labels));
  };
  write_part("train", sizes.num_train);
  write_part("t10k", sizes.num_test);
}

}  // namespace crossdevice::train
