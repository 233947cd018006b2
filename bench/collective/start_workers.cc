// SPDX-License-Identifier: Apache-2.0
#include "collective/start_workers.h"

#include <filesystem>
#include <string>
#include <vector>

#include "run/arguments.h"
#include "run/job.h"

namespace crossdevice::bench {

int start_workers(const WorkerArguments& workers, int argc, const char* const* argv) {
  run::Arguments job;
  job.num_workers = workers.num_workers;
  job.num_namespaces = workers.num_namespaces;
  job.rate = workers.rate;
  job.binding = run::Binding::OWN_CORES;  // two that share one would measure the scheduler
  job.rank_prefix = run::RankPrefix::ERROR_OUTPUT;  // one worker alone writes the table
  job.command.reserve(static_cast<std::size_t>(argc));
  job.command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  job.command.insert(job.command.end(), argv + 1, argv + argc);
  return run::run_job(job);
}

}  // namespace crossdevice::bench
