// SPDX-License-Identifier: Apache-2.0
/// The command line of crossdevice-train.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "train/elastic_training.h"
#include "train/training.h"

namespace crossdevice::train {

struct Arguments {
  std::filesystem::path data_directory;
  std::optional<std::size_t> max_train_images;  ///< nothing: all
  int num_workers =
      1;  ///< how many the launcher has started; training.cluster is for the caller to join
  TrainingOptions training;
  ElasticOptions elastic;
};

/// nullopt: --help or --version was asked for and has been printed.
///
/// Errors   ArgumentError, ValueError (also of the launcher's variables): says which argument is wrong and what is allowed.
[[nodiscard]] std::optional<Arguments> parse_arguments(int argc, const char* const* argv);

}  // namespace crossdevice::train
