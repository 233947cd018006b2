// SPDX-License-Identifier: Apache-2.0
/// Makes cases out of sizes, dtypes, reductions and gradient lists.
#include "collective/plan.h"

#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "collective/gradient_list.h"
#include "collective/machine.h"
#include "support/byte_size.h"
#include "support/program.h"

namespace crossdevice::bench {

namespace {

Case case_for(const Arguments& arguments, DType dtype, ReduceOp op) {
  Case test_case;
  test_case.collective = arguments.collective;
  test_case.dtype = dtype;
  test_case.op = op;
  test_case.devices = arguments.devices;
  test_case.root = arguments.root;
  test_case.num_workers = static_cast<std::size_t>(std::max(1, arguments.workers.num_workers));
  test_case.memory = arguments.memory;
  return test_case;
}

/// `count` elements, as one tensor, or cut into the tensors of a batch.
std::vector<Shape> shapes_of(const Arguments& arguments, std::size_t count) {
  if (arguments.collective != Collective::BATCH_REDUCE) return {Shape{count}};
  std::vector<Shape> shapes;
  const std::size_t parts = arguments.num_tensors;
  for (std::size_t t = 0; t < parts; ++t) {
    shapes.push_back(Shape{count * (t + 1) / parts - count * t / parts});
  }
  return shapes;
}

std::vector<CaseGroup> cases_of_sizes(const Arguments& arguments, DType dtype, ReduceOp op) {
  std::vector<CaseGroup> groups;
  std::optional<std::size_t> last_count;
  const bool gathers = arguments.collective == Collective::GATHER;
  for (const std::size_t size_bytes : sizes_in(arguments.sizes)) {
    std::size_t count = size_bytes / size_in_bytes(dtype);
    if (gathers) count /= arguments.devices.size();
    if (last_count == count) continue;  // the step is smaller than an element
    last_count = count;
    Case test_case = case_for(arguments, dtype, op);
    test_case.shapes = shapes_of(arguments, count);
    groups.push_back({std::move(test_case)});
  }
  return groups;
}

/// The flat buffer first: the batch is held against it.
CaseGroup cases_of_gradients(const Arguments& arguments, const std::vector<Gradient>& gradients,
                             DType dtype, ReduceOp op) {
  Case batch = case_for(arguments, dtype, op);
  for (const Gradient& gradient : gradients) batch.shapes.push_back(gradient.shape);
  Case flat = case_for(arguments, dtype, op);
  flat.collective = Collective::ALL_REDUCE;
  flat.shapes = {Shape{batch.num_input_elements()}};
  return {std::move(flat), std::move(batch)};
}

/// Workers that run already look after themselves: some may be on other machines.
void require_memory(const std::vector<CaseGroup>& groups, const WorkerArguments& workers) {
  const std::optional<std::size_t> available = available_memory_bytes();
  if (!available) return;
  // That of GPUs says no by itself.
  if (!groups.empty() && !groups[0][0].devices.all_host()) return;
  const std::size_t num_here =
      workers.are_running ? 1 : static_cast<std::size_t>(std::max(1, workers.num_workers));
  std::size_t most = 0;
  for (const CaseGroup& group : groups) {
    std::size_t bytes = 0;
    for (const Case& test_case : group) bytes += num_here * test_case.memory_bytes();
    most = std::max(most, bytes);
  }
  if (most > *available) {
    throw programs::ArgumentError(
        fmt::format("the buffers would take {}, but {} of memory are available: measure smaller "
                    "sizes, fewer devices or fewer workers",
                    programs::format_byte_size(most), programs::format_byte_size(*available)));
  }
}

}  // namespace

std::vector<CaseGroup> plan_cases(const Arguments& arguments) {
  std::optional<std::vector<Gradient>> gradients;
  if (arguments.gradients) gradients = read_gradient_list(*arguments.gradients);
  const bool one_combination = arguments.dtypes.size() * arguments.redops.size() == 1;
  std::vector<CaseGroup> groups;
  for (const DType dtype : arguments.dtypes) {
    for (const ReduceOp op : arguments.redops) {
      if (reduces(arguments.collective) && !is_supported(op, dtype)) {
        if (!one_combination) continue;
        throw programs::ArgumentError(
            fmt::format("{} of {} is not defined", to_string(op), to_string(dtype)));
      }
      if (gradients) {
        groups.push_back(cases_of_gradients(arguments, *gradients, dtype, op));
        continue;
      }
      for (CaseGroup& group : cases_of_sizes(arguments, dtype, op)) {
        groups.push_back(std::move(group));
      }
    }
  }
  require_memory(groups, arguments.workers);
  return groups;
}

}  // namespace crossdevice::bench
