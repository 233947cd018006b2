// SPDX-License-Identifier: Apache-2.0
/// Declares, parses and checks the command line.
#include "train/arguments.h"

#include <string>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/version.h"

#include "support/byte_size.h"
#include "support/command_line.h"
#include "support/device_list.h"
#include "support/named_ops.h"
#include "support/program.h"

namespace crossdevice::train {

namespace {

constexpr const char* kHead =
    "Trains a small network (784-256-10, ReLU, softmax cross entropy, SGD with momentum) on "
    "Fashion-MNIST, data parallel: every "
    "device has a replica with the same weights, computes the gradients of its part of each batch, "
    "and the gradients are summed across "
    "the devices, pack by pack, while back-propagation still runs. Started by crossdevice-run, "
    "torchrun, mpirun or srun, the "
    "workers train one model together; the first of them reports.";

constexpr const char* kFooter = R"(
Each epoch's line says where its time went:
  compute        from the start of a step until the last replica has computed its last gradient, and the update of the weights
  communication  hidden + the time in which all replicas wait for the last gradients to be reduced
  hidden         time in which gradients were reduced while back-propagation still ran
An epoch takes compute + communication - hidden, plus the test, which is not counted. With several workers these are the first one's;
communication includes waiting for the others.

With --elastic the workers that are left after a failure meet again, take weights and velocities from the one that has come furthest, and go on with
the step that was under way; the lowest rank of them reports. Their ranks are new then; what is said of them says also what they were at the start. They must be more than half of those that were there unless --min-workers says
otherwise, since two halves of a network that is cut could not know of each other.

The weights' checksum is equal for equal bits. With --deterministic two runs on one machine end with the same bits (matrix products are
cut for its caches), also one process with N devices and N workers with one each; with --grouping-independent any workers that have N devices
together. Other numbers of replicas end with the same weights but for rounding.

The last line is "test accuracy NN.N %".
)";

/// The texts and numbers as CLI11 finds them, before they are checked.
struct Raw {
  std::string data = kDefaultDataDirectory;
  std::string devices;
  std::string bytes_per_pack = "8K";
  std::size_t max_train_images = 0;
  TrainingOptions training;
  ElasticOptions elastic;
  bool is_elastic = false;
};

void declare_data(CLI::App& app, Raw& raw) {
  app.add_option("--data", raw.data, "Directory of the data set's four files")
      ->capture_default_str();
  app.add_option("--train-images", raw.max_train_images,
                 "Use only the first N images to train with")
      ->check(programs::above_zero());
  app.add_option("--devices", raw.devices,
                 "Devices of each worker with commas between, CPU:0,CPU:1 (default: 4 host "
                 "devices, one where there are several workers)");
  app.add_option("--cross-device-ops", raw.training.cross_device_ops,
                 "Cross-device ops: " + programs::known_ops_names())
      ->capture_default_str();
  app.add_option("--bytes-per-pack", raw.bytes_per_pack,
                 "Gradients leave in packs of at least this size, K and M are binary")
      ->capture_default_str();
}

void declare_training(CLI::App& app, TrainingOptions& training) {
  app.add_option("--epochs", training.epochs, "Passes over the training images")
      ->check(programs::above_zero())
      ->capture_default_str();
  app.add_option("--batch-size", training.batch_size, "Images per step, of all replicas together")
      ->check(programs::above_zero())
      ->capture_default_str();
  app.add_option("--hidden", training.hidden_widths,
                 "Widths of the hidden layers, with commas between")
      ->delimiter(',')
      ->check(programs::above_zero())
      ->capture_default_str();
  app.add_option("--learning-rate", training.rate, "Rate of the first step; falls linearly to 0")
      ->check(programs::not_negative())
      ->capture_default_str();
  app.add_option("--momentum", training.momentum, "Momentum")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--deterministic", training.deterministic,
               "The weights' bits depend on the arguments, the data and the machine alone");
  app.add_flag("--grouping-independent", training.grouping_independent,
               "The same, and not on how replicas are spread over workers");
}

void declare_elastic(CLI::App& app, Raw& raw) {
  app.add_flag(
      "--elastic", raw.is_elastic,
      "When a worker fails the others go on without it (with crossdevice-run --keep-going)");
  app.add_option("--min-workers", raw.elastic.min_workers,
                 "With --elastic: go on with no fewer workers (default: more than half of those "
                 "that were there)")
      ->check(programs::above_zero());
}

Devices devices_of(const std::string& names, int num_workers) {
  Devices devices;
  if (names.empty()) {
    // Host devices also where there are GPUs.
    devices = num_workers > 1 ? Devices{"CPU:0"} : programs::default_host_devices();
  } else {
    devices = programs::parse_devices(names);
  }
  for (const Device& device : devices) {
    if (!device.is_host()) {
      throw programs::ArgumentError(
          fmt::format("{}: this version's network computes on host devices only; name some with "
                      "--devices CPU:0,CPU:1",
                      device.short_name()));
    }
  }
  return devices;
}

}  // namespace

std::optional<Arguments> parse_arguments(int argc, const char* const* argv) {
  Raw raw;
  CLI::App app{kHead, "crossdevice-train"};
  app.set_version_flag("--version", fmt::format("crossdevice-train {}", library_version_string()));
  app.footer(kFooter + std::string(programs::kExitCodesHelp));
  declare_data(app, raw);
  declare_training(app, raw.training);
  declare_elastic(app, raw);
  app.add_option("--seed", raw.training.seed, "Of the first weights and the order of the images")
      ->capture_default_str();
  if (!programs::parse_command_line(app, argc, argv)) return std::nullopt;

  programs::require_known_ops(raw.training.cross_device_ops);
  raw.training.bytes_per_pack = programs::parse_byte_size(raw.bytes_per_pack);
  const int num_workers = detect_cluster_resolver()->identity().num_workers;
  raw.training.devices = devices_of(raw.devices, num_workers);
  Arguments arguments{.data_directory = raw.data,
                      .max_train_images = std::nullopt,
                      .num_workers = num_workers,
                      .training = raw.training,
                      .elastic = raw.elastic};
  if (raw.is_elastic) arguments.elastic.when_one_fails = WhenAWorkerFails::GO_ON;
  if (raw.elastic.min_workers > 0 && !raw.is_elastic) {
    throw programs::ArgumentError("--min-workers needs --elastic");
  }
  if (raw.elastic.min_workers > num_workers) {
    throw programs::ArgumentError(
        fmt::format("--min-workers is {}, more than there are workers: {}", raw.elastic.min_workers,
                    num_workers));
  }
  if (raw.max_train_images > 0) arguments.max_train_images = raw.max_train_images;
  return arguments;
}

}  // namespace crossdevice::train
