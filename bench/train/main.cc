// SPDX-License-Identifier: Apache-2.0
/// crossdevice-train: trains on Fashion-MNIST, data parallel, and reports what that cost.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "support/byte_size.h"
#include "support/program.h"
#include "train/arguments.h"
#include "train/data_set.h"
#include "train/progress_bar.h"
#include "train/training.h"

namespace {

using namespace crossdevice;  // NOLINT(google-build-using-namespace): the program's own
using programs::format_byte_size;

void print_set_up(const train::DataSet& data, const train::TrainingOptions& options,
                  const train::Training& training) {
  fmt::print("Fashion-MNIST: {} images to train with, {} to test with\n", data.train.size(),
             data.test.size());
  std::string packs;
  for (const std::size_t size_bytes : training.pack_sizes_bytes()) {
    packs += (packs.empty() ? "" : ", ") + format_byte_size(size_bytes);
  }
  fmt::print("{} replicas on {}, batches of {} images; gradients leave in packs of {}\n",
             training.num_replicas(), options.devices.to_string(), options.batch_size, packs);
  std::fflush(stdout);
}

void print_epoch(std::size_t epoch, std::size_t epochs, const train::EpochResult& result,
                 double accuracy) {
  const train::TimeSplit& time = result.time;
  fmt::print(
      "epoch {}/{}: loss {:.4f}, test accuracy {:.1f} %, {:.2f} s (compute {:.3f} s, communication "
      "{:.3f} s, of it hidden {:.3f} s)\n",
      epoch + 1, epochs, result.mean_loss, 100 * accuracy, time.total(), time.compute,
      time.communication, time.hidden);
  std::fflush(stdout);
}

/// Whether every replica has the same bits; prints their checksum.
bool print_weights(const train::Training& training) {
  const std::uint64_t first = train::checksum(training.weights(0));
  for (std::size_t r = 1; r < training.num_replicas(); ++r) {
    const std::uint64_t other = train::checksum(training.weights(r));
    if (other != first) {
      fmt::print(stderr,
                 "crossdevice-train: the replicas' weights differ: replica 0 has {:016x}, replica "
                 "{} has {:016x}\n",
                 first, r, other);
      return false;
    }
  }
  fmt::print("weights {:016x}, the same on every replica\n", first);
  return true;
}

int run(int argc, char** argv) {
  const std::optional<train::Arguments> arguments = train::parse_arguments(argc, argv);
  if (!arguments) return programs::kExitOk;
  const train::TrainingOptions& options = arguments->training;
  train::DataSet data = train::read_data_set(arguments->data_directory);
  if (arguments->max_train_images) data.train.truncate(*arguments->max_train_images);

  train::Training training(data, options);
  print_set_up(data, options, training);
  train::TimeSplit time;
  double accuracy = 0;
  for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
    train::EpochResult result;
    {
      train::ProgressBar bar(fmt::format("epoch {}/{}", epoch + 1, options.epochs));
      result = training.run_epoch(epoch, [&](std::size_t done, std::size_t steps, double loss) {
        bar.show(done, steps, fmt::format("loss {:.4f}", loss));
      });
    }
    accuracy = training.test_accuracy();
    print_epoch(epoch, options.epochs, result, accuracy);
    time += result.time;
  }
  fmt::print(
      "trained for {:.2f} s: compute {:.3f} s, communication {:.3f} s, of it hidden behind compute "
      "{:.3f} s\n",
      time.total(), time.compute, time.communication, time.hidden);
  if (!print_weights(training)) return programs::kExitWrongValues;
  fmt::print("test accuracy {:.1f} %\n", 100 * accuracy);
  return programs::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  return programs::run_program("crossdevice-train", [&] { return run(argc, argv); });
}
