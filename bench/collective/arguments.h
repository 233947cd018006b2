// SPDX-License-Identifier: Apache-2.0
/// The command line of crossdevice-bench: nccl-tests' flags, and a few of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/all_reduce_spec.h"
#include "crossdevice/ops/communication_options.h"

#include "collective/case_buffers.h"
#include "collective/collective.h"
#include "collective/interleave.h"
#include "collective/sizes.h"

namespace crossdevice::bench {

/// Which processes measure together.
struct WorkerArguments {
  int num_workers = 0;       ///< 0: this process alone, across its devices
  bool are_running = false;  ///< a launcher has started them, and this process is one of them
  int num_namespaces = 0;    ///< 0: they run where this process does
  std::string rate;          ///< of each namespace's link, as tc takes it; empty: no limit
};

struct Arguments {
  Collective collective = Collective::ALL_REDUCE;
  std::string ops = "auto";
  Devices devices;  ///< of each worker
  bool takes_own_gpus =
      false;  ///< a worker's devices are those that default_devices(cluster) gives it
  WorkerArguments workers;
  MemoryKind memory = MemoryKind::POOL;
  SizeRange sizes;
  InterleaveOptions timing;
  bool check = true;
  bool show_percentiles = false;
  bool explain = false;  ///< say how, instead of measuring
  std::vector<DType> dtypes = {DType::FLOAT32};
  std::vector<ReduceOp> redops = {ReduceOp::SUM};
  std::size_t root = 0;
  std::size_t num_tensors = 16;          ///< of a batch without a gradient list
  std::optional<std::string> gradients;  ///< path
  int num_packs = 1;
  AllReduceSpec all_reduce_spec = {"pscpu/pscpu", 2, -1};
  CommunicationOptions communication;
  std::optional<std::string> json;  ///< path
};

/// How many workers a launcher says there are; 1 where nobody has launched this process.
using LaunchedWorkers = std::function<int()>;

/// nullopt: --help or --version was asked for and has been printed. With more than one launched worker this process is one of them, with or
/// without --workers.
///
/// Errors   ArgumentError, ValueError: says which argument is wrong and what is allowed.
[[nodiscard]] std::optional<Arguments> parse_arguments(
    int argc, const char* const* argv, const LaunchedWorkers& launched_workers = [] { return 1; });

/// Reduction names of nccl-tests (sum, prod, min, max, avg) and of the library (mean). "all": every one.
///
/// Errors   ArgumentError: none of these.
[[nodiscard]] std::vector<ReduceOp> parse_redops(const std::string& name);
/// Type names of nccl-tests (float, half, int8, f8e4m3, ...) and of the library (float32, ...). "all": every one.
///
/// Errors   ArgumentError: none of these.
[[nodiscard]] std::vector<DType> parse_dtypes(const std::string& name);

}  // namespace crossdevice::bench
