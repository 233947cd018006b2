// SPDX-License-Identifier: Apache-2.0
/// crossdevice-train: trains on Fashion-MNIST, data parallel, and reports what that cost.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/comm/cluster.h"

#include "support/byte_size.h"
#include "support/program.h"
#include "train/arguments.h"
#include "train/data_set.h"
#include "train/elastic_training.h"
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
  fmt::print("{} {} on {}{}, batches of {} images; gradients leave in packs of {}\n",
             training.num_replicas(), training.num_replicas() == 1 ? "replica" : "replicas",
             options.devices.to_string(),
             training.num_workers() > 1
                 ? fmt::format(" of each of {} workers", training.num_workers())
                 : "",
             options.batch_size, packs);
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

/// Whether every replica has the same bits; the chief prints their checksum.
bool have_equal_weights(const std::vector<std::uint64_t>& checksums, bool is_chief) {
  for (std::size_t r = 1; r < checksums.size(); ++r) {
    if (checksums[r] == checksums[0]) continue;
    if (is_chief) {
      fmt::print(stderr,
                 "crossdevice-train: the replicas' weights differ: replica 0 has {:016x}, replica "
                 "{} has {:016x}\n",
                 checksums[0], r, checksums[r]);
    }
    return false;
  }
  if (is_chief) fmt::print("weights {:016x}, the same on every replica\n", checksums[0]);
  return true;
}

/// What has been done, whichever worker did it: kept while the training is made anew.
struct Progress {
  std::vector<train::TimeSplit> times;  // by epoch
  std::size_t num_printed = 0;          // epochs
  double accuracy = 0;
  bool are_weights_equal = true;
};

/// Trains from training.epoch() to the end. The chief prints a line for each epoch.
void train_to_the_end(train::Training& training, const train::TrainingOptions& options,
                      Progress& progress) {
  for (std::size_t epoch = training.epoch(); epoch < options.epochs; ++epoch) {
    train::EpochResult result;
    {
      std::optional<train::ProgressBar> bar;
      if (training.is_chief()) bar.emplace(fmt::format("epoch {}/{}", epoch + 1, options.epochs));
      result = training.run_epoch(epoch, [&](std::size_t done, std::size_t steps, double loss) {
        if (bar) bar->show(done, steps, fmt::format("loss {:.4f}", loss));
      });
    }
    progress.times[epoch] = result.time;
    progress.accuracy = training.test_accuracy();
    if (!training.is_chief() || epoch < progress.num_printed) continue;
    print_epoch(epoch, options.epochs, result, progress.accuracy);
    progress.num_printed = epoch + 1;
  }
  const std::vector<std::uint64_t> checksums = training.checksums();
  if (training.is_chief()) {
    train::TimeSplit time;
    for (const train::TimeSplit& each : progress.times) time += each;
    fmt::print(
        "trained for {:.2f} s: compute {:.3f} s, communication {:.3f} s, of it hidden behind "
        "compute {:.3f} s\n",
        time.total(), time.compute, time.communication, time.hidden);
  }
  progress.are_weights_equal = have_equal_weights(checksums, training.is_chief());
  if (training.is_chief() && progress.are_weights_equal) {
    fmt::print("test accuracy {:.1f} %\n", 100 * progress.accuracy);
  }
}

int run(int argc, char** argv) {
  const std::optional<train::Arguments> arguments = train::parse_arguments(argc, argv);
  if (!arguments) return programs::kExitOk;
  train::TrainingOptions options = arguments->training;
  train::DataSet data = train::read_data_set(arguments->data_directory);
  if (arguments->max_train_images) data.train.truncate(*arguments->max_train_images);
  if (arguments->num_workers > 1) options.cluster = Cluster::join();

  train::ElasticOptions elastic = arguments->elastic;
  elastic.on_recovery = [](const train::Training& training, const std::string& why) {
    if (!training.is_chief()) return;
    const train::TrainingState at = training.state();
    // A bucketer does not know epochs of training.
    const bool names_a_step = why.find("step ") != std::string::npos;
    fmt::print(stderr, "crossdevice-train: {}{}; {} {} on, in epoch {} after {} of its steps\n",
               why, names_a_step ? " (steps counted since these workers began)" : "",
               training.num_workers(), training.num_workers() == 1 ? "worker goes" : "workers go",
               at.epoch + 1, at.step);
  };
  train::ElasticTraining training(data, options, elastic);
  Progress progress{.times = std::vector<train::TimeSplit>(options.epochs)};
  bool is_set_up = false;
  training.run([&](train::Training& made) {
    if (!std::exchange(is_set_up, true) && made.is_chief()) print_set_up(data, options, made);
    train_to_the_end(made, options, progress);
  });
  return progress.are_weights_equal ? programs::kExitOk : programs::kExitWrongValues;
}

}  // namespace

int main(int argc, char** argv) {
  return programs::run_program("crossdevice-train", [&] { return run(argc, argv); });
}
