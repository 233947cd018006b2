// SPDX-License-Identifier: Apache-2.0
/// crossdevice-run: starts the workers of one job, on this machine and on others.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "run/arguments.h"
#include "run/host_agent.h"
#include "run/job.h"
#include "run/remote_trace.h"
#include "run/trace_merge.h"
#include "run/worker_process.h"
#include "support/program.h"

namespace {

using namespace crossdevice;  // NOLINT(google-build-using-namespace): the program's own

int run_program(int argc, char** argv) {
  try {
    const std::string_view only = argc == 2 ? argv[1] : "";
    if (only == "--host-agent") return run::run_host_agent();
    if (only == "--trace-agent") return run::run_trace_agent();
    const std::optional<run::Arguments> arguments = run::parse_arguments(argc, argv);
    if (!arguments.has_value()) return programs::kExitOk;
    if (!arguments->traces_to_merge.empty()) {
      const std::vector<std::string>& files = arguments->traces_to_merge;
      run::merge_trace_files({files.begin() + 1, files.end()}, files.front());
      return programs::kExitOk;
    }
    return run::run_job(*arguments);
  } catch (const run::CannotExecute& error) {
    fmt::print(stderr, "crossdevice-run: {}\n", error.what());
    return error.exit_code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return programs::run_program("crossdevice-run", [&] { return run_program(argc, argv); });
}
