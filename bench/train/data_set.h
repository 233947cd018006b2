// SPDX-License-Identifier: Apache-2.0
/// Fashion-MNIST: 60000 images to train with and 10000 to test with, 28 x 28 grey values each, in ten classes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace crossdevice::train {

inline constexpr std::size_t kNumClasses = 10;

/// Images, one behind the other, and the class of each.
struct LabelledImages {
  std::size_t pixels_per_image = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::size_t size() const { return labels.size(); }
  [[nodiscard]] std::span<const std::uint8_t> image(std::size_t index) const {
    return std::span(pixels).subspan(index * pixels_per_image, pixels_per_image);
  }
  /// Keeps the first `count` images, if there are more.
  void truncate(std::size_t count);
};

struct DataSet {
  LabelledImages train;
  LabelledImages test;
};

/// Where Debian's and Ubuntu's package dataset-fashion-mnist puts the files.
inline constexpr const char* kDefaultDataDirectory = "/usr/share/datasets/fashion-mnist";

/// Reads the four files of MNIST's names, {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without ".gz".
///
/// Errors   std::runtime_error: a file is not there (says how to install the data), is damaged, holds images without pixels,
///          another number of labels than of images, or a class that is not below 10.
[[nodiscard]] DataSet read_data_set(const std::filesystem::path& directory);

/// Pixel values as the network sees them: shifted and scaled to mean 0 and standard deviation 1 over Fashion-MNIST.
[[nodiscard]] const std::array<float, 256>& normalised_pixels();

}  // namespace crossdevice::train
