// SPDX-License-Identifier: Apache-2.0
/// Finds and checks the four files of Fashion-MNIST.
#include "train/data_set.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "train/idx_file.h"

namespace crossdevice::train {

namespace {

std::filesystem::path find_file(const std::filesystem::path& directory, const std::string& name) {
  for (const char* const ending : {".gz", ""}) {
    std::filesystem::path path = directory / (name + ending);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw std::runtime_error(
      fmt::format("the training data is not there: {} lacks {}.gz.\n"
                  "On Debian and Ubuntu it is a package:\n"
                  "    sudo apt-get install dataset-fashion-mnist\n"
                  "Another copy of the four files is used with --data DIRECTORY.",
                  directory.string(), name));
}

LabelledImages read_part(const std::filesystem::path& directory, const std::string& prefix) {
  const std::filesystem::path image_path = find_file(directory, prefix + "-images-idx3-ubyte");
  const std::filesystem::path label_path = find_file(directory, prefix + "-labels-idx1-ubyte");
  IdxArray images = read_idx_file(image_path);
  IdxArray labels = read_idx_file(label_path);
  const auto fail = [](const std::filesystem::path& path, std::string_view why) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), why));
  };
  if (images.dims.size() != 3) {
    fail(image_path,
         fmt::format("has {} dimensions, expected 3 (images, rows, columns)", images.dims.size()));
  }
  if (labels.dims.size() != 1) {
    fail(label_path, fmt::format("has {} dimensions, expected 1", labels.dims.size()));
  }
  if (images.dims[0] == 0) fail(image_path, "holds no images");
  if (images.bytes.empty()) fail(image_path, "holds images without pixels");
  if (labels.dims[0] != images.dims[0]) {
    fail(label_path, fmt::format("has {} labels for {} images", labels.dims[0], images.dims[0]));
  }
  const std::uint8_t largest = *std::max_element(labels.bytes.begin(), labels.bytes.end());
  if (largest >= kNumClasses) {
    fail(label_path, fmt::format("holds the class {}, expected 0 to {}", largest, kNumClasses - 1));
  }
  LabelledImages part;
  part.pixels_per_image = images.dims[1] * images.dims[2];
  part.pixels = std::move(images.bytes);
  part.labels = std::move(labels.bytes);
  return part;
}

}  // namespace

void LabelledImages::truncate(std::size_t count) {
  if (count >= size()) return;
  labels.resize(count);
  pixels.resize(count * pixels_per_image);
}

DataSet read_data_set(const std::filesystem::path& directory) {
  DataSet data{.train = read_part(directory, "train"), .test = read_part(directory, "t10k")};
  if (data.train.pixels_per_image != data.test.pixels_per_image) {
    throw std::runtime_error(
        fmt::format("{}: images to train with have {} pixels, those to test with {}",
                    directory.string(), data.train.pixels_per_image, data.test.pixels_per_image));
  }
  return data;
}

const std::array<float, 256>& normalised_pixels() {
  // Mean and standard deviation of the 60000 images' grey values, as fractions of 255.
  constexpr float kMean = 0.2860F;
  constexpr float kDeviation = 0.3530F;
  static const std::array<float, 256> pixels = [] {
    std::array<float, 256> table{};
    for (std::size_t value = 0; value < table.size(); ++value) {
      table[value] = (static_cast<float>(value) / 255.0F - kMean) / kDeviation;
    }
    return table;
  }();
  return pixels;
}

}  // namespace crossdevice::train
