// SPDX-License-Identifier: Apache-2.0
/// Declares, parses and checks the command line.
#include "collective/arguments.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "crossdevice/core/version.h"

#include "collective/help.h"
#include "run/arguments.h"
#include "support/byte_size.h"
#include "support/command_line.h"
#include "support/device_list.h"
#include "support/named_ops.h"
#include "support/program.h"

namespace crossdevice::bench {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Collective parse_collective(const std::string& name) {
  std::string known;
  for (const Collective collective : kAllCollectives) {
    if (name == to_string(collective)) return collective;
    known += fmt::format(" {}", to_string(collective));
  }
  throw programs::ArgumentError(fmt::format("--op '{}': expected one of{}", name, known));
}

/// The texts and numbers as CLI11 finds them, before they are checked.
struct Raw {
  std::string op = "all_reduce";
  std::string ops = "auto";
  std::optional<std::string> devices;
  int num_devices = 0;
  int num_workers = 0;
  int num_namespaces = 0;
  std::string rate;
  bool foreign = false;
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::optional<std::string> step_bytes;
  double step_factor = 2;
  std::size_t iterations = 20;
  std::size_t warmup = 5;
  std::size_t rounds = 5;
  int check = 1;
  std::string redop = "sum";
  std::string dtype = "float";
  std::size_t root = 0;
  std::size_t num_tensors = 16;
  std::string gradients;
  int num_packs = 1;
  std::string all_reduce_spec = "pscpu/pscpu#2";
  std::string bytes_per_pack = "0";
  bool deterministic = false;
  bool grouping_independent = false;
  bool explain = false;
  bool percentiles = false;
  double timeout_seconds = 0;
  std::string json;
};

void declare_what(CLI::App& app, Raw& raw) {
  const std::string what = "What to measure";
  app.add_option("--op", raw.op, "all_reduce, batch_reduce, reduce, broadcast or gather")
      ->group(what)
      ->capture_default_str();
  app.add_option("--ops", raw.ops, "Cross-device ops: " + programs::known_ops_names())
      ->group(what)
      ->capture_default_str();
  auto* devices =
      app.add_option(
             "--devices", raw.devices,
             "Devices with commas between, CPU:0,CPU:1 (default: all GPUs, else 4 host devices)")
          ->group(what);
  app.add_option("-g,--ngpus", raw.num_devices,
                 "The first N GPUs, or N host devices where there is no GPU")
      ->group(what)
      ->excludes(devices)
      ->check(programs::above_zero());
  app.add_option("-r,--root", raw.root,
                 "Position in --devices of the root of reduce, broadcast and gather")
      ->group(what)
      ->capture_default_str();
  app.add_option("-o,--redop", raw.redop, "Reduction: sum, prod, min, max, avg (mean) or all")
      ->group(what)
      ->capture_default_str();
  app.add_option("-d,--datatype", raw.dtype,
                 "Element type, by nccl-tests' or the library's name (float, half, bfloat16, int8, "
                 "float64, complex64, ...) or all")
      ->group(what)
      ->capture_default_str();
}

void declare_workers(CLI::App& app, Raw& raw) {
  const std::string workers = "Workers";
  app.add_option("--workers", raw.num_workers,
                 "Start N workers on this machine and measure among them; -g and --devices are "
                 "each worker's (default: one host device); --devices GPU: the machine's GPUs, "
                 "shared out among them")
      ->group(workers)
      ->check(CLI::Range(1, run::kMaxWorkers));
  app.add_option("--netns", raw.num_namespaces,
                 "Put them into K network namespaces, as if on K hosts; needs root")
      ->group(workers)
      ->check(CLI::Range(1, run::kMaxNamespaces));
  app.add_option("--rate", raw.rate,
                 "Limit each namespace's link, each way: 200mbit, 1gbit (with --netns)")
      ->group(workers);
  app.add_flag("--foreign", raw.foreign,
               "Buffers that are not from the library's pool (also without --workers)")
      ->group(workers);
}

void declare_sizes(CLI::App& app, Raw& raw) {
  const std::string sizes = "Sizes (K, M, G are binary)";
  auto* min_bytes = app.add_option("-b,--minbytes", raw.min_bytes, "Smallest size")
                        ->group(sizes)
                        ->capture_default_str();
  auto* max_bytes = app.add_option("-e,--maxbytes", raw.max_bytes, "Largest size")
                        ->group(sizes)
                        ->capture_default_str();
  auto* step = app.add_option("-i,--stepbytes", raw.step_bytes,
                              "Each size is this much larger than the one before")
                   ->group(sizes);
  auto* factor = app.add_option("-f,--stepfactor", raw.step_factor,
                                "Each size is this many times the one before")
                     ->group(sizes)
                     ->excludes(step)
                     ->capture_default_str();
  app.add_option("--gradients", raw.gradients,
                 "A model's gradients instead: a CSV file name,shape,numel; one batch_reduce, held "
                 "against one flat buffer")
      ->group(sizes)
      ->excludes(min_bytes)
      ->excludes(max_bytes)
      ->excludes(step)
      ->excludes(factor);
  app.add_option("--tensors", raw.num_tensors,
                 "Tensors that a batch_reduce without --gradients is cut into")
      ->group(sizes)
      ->check(programs::above_zero())
      ->capture_default_str();
}

void declare_how(CLI::App& app, Raw& raw) {
  const std::string how = "How to run";
  app.add_option("-n,--iters", raw.iterations, "Timed calls per row")
      ->group(how)
      ->check(programs::above_zero())
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", raw.warmup, "Untimed calls before")
      ->group(how)
      ->capture_default_str();
  app.add_option("--rounds", raw.rounds,
                 "Turns that operation and limit take, A B A B ... (at least 5)")
      ->group(how)
      ->check(CLI::Range(5, 1000000))
      ->capture_default_str();
  app.add_option("-c,--check", raw.check,
                 "Compare every element of a first call with a reference; 0: do not")
      ->group(how)
      ->check(programs::not_negative())
      ->capture_default_str();
  app.add_option("--num-packs", raw.num_packs, "num_packs of the ops")
      ->group(how)
      ->check(programs::not_negative())
      ->capture_default_str();
  app.add_option("--all-reduce-spec", raw.all_reduce_spec,
                 "all_reduce_spec of --ops multi_worker: xring#2, nccl:64k:pscpu/pscpu#2, ...; its "
                 "workers are those of the devices")
      ->group(how)
      ->capture_default_str();
  app.add_option("--bytes-per-pack", raw.bytes_per_pack, "CommunicationOptions::bytes_per_pack")
      ->group(how)
      ->capture_default_str();
  app.add_flag("--deterministic", raw.deterministic, "CommunicationOptions::deterministic")
      ->group(how);
  app.add_flag("--grouping-independent", raw.grouping_independent,
               "CommunicationOptions::grouping_independent")
      ->group(how);
  app.add_option("-T,--timeout", raw.timeout_seconds,
                 "CommunicationOptions::timeout_seconds, 0: none")
      ->group(how)
      ->capture_default_str();

  const std::string output = "Output";
  app.add_flag(
         "--explain", raw.explain,
         "Say how an all-reduce of each size would be done and what else could be, and measure "
         "nothing but the links (with --workers)")
      ->group(output);
  app.add_flag("-I,--percentiles", raw.percentiles,
               "Show the 10th and 99th percentile of the time too")
      ->group(output);
  app.add_option("-J,--json", raw.json, "Write all rows to this file")->group(output);
}

WorkerArguments checked_workers(const Raw& raw, int num_launched) {
  WorkerArguments workers;
  workers.are_running = num_launched > 1;
  workers.num_workers = workers.are_running ? num_launched : raw.num_workers;
  if (workers.are_running && raw.num_workers > 0 && raw.num_workers != num_launched) {
    throw programs::ArgumentError(
        fmt::format("--workers {}: this is one of {} workers that a launcher has started",
                    raw.num_workers, num_launched));
  }
  if (raw.num_namespaces > 0) {
    if (raw.num_workers < 2) throw programs::ArgumentError("--netns needs --workers 2 or more");
    if (raw.num_namespaces > raw.num_workers) {
      throw programs::ArgumentError(fmt::format("--netns {}: there are only {} workers for them",
                                                raw.num_namespaces, raw.num_workers));
    }
  }
  if (!raw.rate.empty()) {
    (void)run::bits_per_second(raw.rate);
    if (raw.num_namespaces == 0) throw programs::ArgumentError("--rate needs --netns");
  }
  workers.num_namespaces = raw.num_namespaces;
  workers.rate = raw.rate;
  return workers;
}

constexpr const char* kForeignOnGpus = "--foreign: on GPUs the memory is always the library's";

/// Each worker's GPUs are for the workers to share out, when they have met.
bool takes_own_gpus(const Raw& raw, const WorkerArguments& workers) {
  return workers.num_workers > 0 && raw.devices == "GPU";
}

Devices checked_devices(const Raw& raw, const WorkerArguments& workers) {
  if (takes_own_gpus(raw, workers)) {
    if (raw.foreign) throw programs::ArgumentError(kForeignOnGpus);
    return Devices{"CPU:0"};  // until then
  }
  Devices devices = raw.devices.has_value()   ? programs::parse_devices(*raw.devices)
                    : raw.num_devices > 0     ? programs::first_devices(raw.num_devices)
                    : workers.num_workers > 0 ? Devices{"CPU:0"}
                                              : programs::default_devices();
  if (devices.all_host()) return devices;
  for (const Device& device : devices) {
    device.require_present();
    if (device.is_host()) {
      throw programs::ArgumentError(fmt::format(
          "--devices {}: GPUs and host devices are measured apart", devices.to_string()));
    }
  }
  if (raw.foreign) throw programs::ArgumentError(kForeignOnGpus);
  return devices;
}

/// What is not for workers of several processes.
void require_for_workers(const Arguments& arguments) {
  if (arguments.workers.num_workers == 0) return;
  if (arguments.collective != Collective::ALL_REDUCE &&
      arguments.collective != Collective::BATCH_REDUCE) {
    throw programs::ArgumentError(fmt::format(
        "--op {}: workers measure all_reduce and batch_reduce", to_string(arguments.collective)));
  }
  if (arguments.ops != "auto") {
    throw programs::ArgumentError(fmt::format(
        "--ops {}: workers reduce with CollectiveAllReduce, which --ops auto is", arguments.ops));
  }
}

/// 0: sizes grow by a factor.
std::size_t step_bytes_of(const Raw& raw) {
  if (!raw.step_bytes.has_value()) return 0;
  const std::size_t bytes = programs::parse_byte_size(*raw.step_bytes);
  if (bytes == 0)
    throw programs::ArgumentError("--stepbytes 0: sizes that do not grow have no end");
  return bytes;
}

Arguments checked(const Raw& raw, int num_launched) {
  Arguments arguments;
  arguments.collective = parse_collective(raw.op);
  arguments.ops = raw.ops;
  programs::require_known_ops(raw.ops);
  arguments.workers = checked_workers(raw, num_launched);
  arguments.explain = raw.explain;
  arguments.memory = raw.foreign ? MemoryKind::FOREIGN : MemoryKind::POOL;
  arguments.devices = checked_devices(raw, arguments.workers);
  arguments.takes_own_gpus = takes_own_gpus(raw, arguments.workers);
  require_for_workers(arguments);
  arguments.sizes = {.min_bytes = programs::parse_byte_size(raw.min_bytes),
                     .max_bytes = programs::parse_byte_size(raw.max_bytes),
                     .step_bytes = step_bytes_of(raw),
                     .step_factor = raw.step_factor};
  (void)sizes_in(arguments.sizes);
  arguments.timing = {.iterations = raw.iterations, .warmup = raw.warmup, .rounds = raw.rounds};
  arguments.check = raw.check != 0;
  arguments.show_percentiles = raw.percentiles;
  arguments.dtypes = parse_dtypes(raw.dtype);
  arguments.redops = reduces(arguments.collective) ? parse_redops(raw.redop)
                                                   : std::vector<ReduceOp>{ReduceOp::SUM};
  if (raw.root >= arguments.devices.size()) {
    throw programs::ArgumentError(fmt::format("--root {}: there are {} devices, counted from 0",
                                              raw.root, arguments.devices.size()));
  }
  arguments.root = raw.root;
  arguments.num_tensors = raw.num_tensors;
  if (!raw.gradients.empty()) arguments.gradients = raw.gradients;
  arguments.num_packs = raw.num_packs;
  arguments.all_reduce_spec = raw.all_reduce_spec;
  arguments.communication = {.bytes_per_pack = programs::parse_byte_size(raw.bytes_per_pack),
                             .timeout_seconds = raw.timeout_seconds,
                             .deterministic = raw.deterministic,
                             .grouping_independent = raw.grouping_independent};
  arguments.communication.validate();
  if (!raw.json.empty()) arguments.json = raw.json;
  return arguments;
}

}  // namespace

std::vector<ReduceOp> parse_redops(const std::string& name) {
  const std::string text = lower(name);
  if (text == "all") return {std::begin(kAllReduceOps), std::end(kAllReduceOps)};
  if (text == "avg") return {ReduceOp::MEAN};
  for (const ReduceOp op : kAllReduceOps) {
    if (text == lower(std::string(to_string(op)))) return {op};
  }
  throw programs::ArgumentError(
      fmt::format("--redop '{}': expected sum, prod, min, max, avg (or mean) or all", name));
}

std::vector<DType> parse_dtypes(const std::string& name) {
  const std::string text = lower(name);
  if (text == "all") return {std::begin(kAllDTypes), std::end(kAllDTypes)};
  static const std::map<std::string, DType> nccl_names = {
      {"float", DType::FLOAT32},      {"double", DType::FLOAT64},     {"half", DType::FLOAT16},
      {"f8e4m3", DType::FLOAT8_E4M3}, {"f8e5m2", DType::FLOAT8_E5M2},
  };
  if (const auto found = nccl_names.find(text); found != nccl_names.end()) return {found->second};
  if (const std::optional<DType> dtype = dtype_from_string(text)) return {*dtype};
  std::string known;
  for (const DType dtype : kAllDTypes) known += fmt::format(" {}", to_string(dtype));
  throw programs::ArgumentError(fmt::format(
      "--datatype '{}': expected one of{} float double half f8e4m3 f8e5m2 all", name, known));
}

std::optional<Arguments> parse_arguments(int argc, const char* const* argv,
                                         const LaunchedWorkers& launched_workers) {
  CLI::App app{std::string(kHelpHead), "crossdevice-bench"};
  app.set_version_flag("--version", fmt::format("crossdevice-bench {}", library_version_string()));
  app.footer(std::string(kHelpFooter) + "\n" + std::string(programs::kExitCodesHelp));
  Raw raw;
  declare_what(app, raw);
  declare_workers(app, raw);
  declare_sizes(app, raw);
  declare_how(app, raw);
  if (!programs::parse_command_line(app, argc, argv)) return std::nullopt;
  if (!raw.gradients.empty()) {
    if (app.count("--op") > 0 && raw.op != to_string(Collective::BATCH_REDUCE)) {
      throw programs::ArgumentError(
          fmt::format("--gradients is one batch_reduce; --op {} does not fit", raw.op));
    }
    raw.op = to_string(Collective::BATCH_REDUCE);
  }
  return checked(raw, launched_workers());
}

}  // namespace crossdevice::bench
