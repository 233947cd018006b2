// SPDX-License-Identifier: Apache-2.0
#include "run/job.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/usable_cores.h"

#include "run/core_share.h"
#include "run/forwarded_variables.h"
#include "run/janitor.h"
#include "run/job_on_hosts.h"
#include "run/layout.h"
#include "run/secret_file.h"
#include "run/supervisor.h"
#include "run/trace_merge.h"
#include "run/worker_environment.h"
#include "run/worker_process.h"

namespace crossdevice::run {

namespace {

int run_job_here(const Arguments& arguments) {
  // The janitor first: it is to hold nothing open, and to know the file before there is one.
  const std::string path = secret_file_path();
  const Janitor janitor(path);
  Supervisor supervisor(arguments, janitor);
  const SecretFile secret(path, random_secret());
  const Layout layout(arguments, std::filesystem::path(path).stem());
  const std::vector<std::string> inherited =
      with_variables(environ, requested_variables(environ, arguments.exported));
  const std::set<int> cores = detail::usable_cores();
  for (int rank = 0; rank < arguments.num_workers; ++rank) {
    WorkerPlace place = layout.place(rank);
    place.secret_file = secret.path();
    WorkerSetting setting;
    setting.command = arguments.command;
    setting.environment = environment_of(place, inherited);
    setting.network_namespace = layout.network_namespace(rank);
    if (arguments.binding == Binding::OWN_CORES) {
      setting.cores = share_of_cores(cores, rank, arguments.num_workers);
    }
    supervisor.start(std::move(setting), rank);
  }
  return supervisor.run();
}

/// Where the variable asks for a file for each process, that is what it gets.
std::string trace_of(const Arguments& given) {
  if (!given.trace.empty()) return given.trace;
  const auto is_trace = [](const std::string& variable) {
    return variable.starts_with("CROSSDEVICE_TRACE=");
  };
  if (std::ranges::any_of(given.exported, is_trace)) return {};  // whoever starts the job has said
  std::string path = process_environment()("CROSSDEVICE_TRACE").value_or("");
  const bool is_many = path.find("%p") != std::string::npos || path.find("%r") != std::string::npos;
  return is_many ? std::string() : path;
}

}  // namespace

int run_job(const Arguments& given) {
  const JobTrace trace(trace_of(given));
  Arguments arguments = given;
  for (std::string& variable : trace.variables()) arguments.exported.push_back(std::move(variable));
  const int code =
      arguments.hosts.empty() ? run_job_here(arguments) : run_job_on_hosts(arguments, trace.path());
  trace.finish(arguments.num_workers);
  return code;
}

}  // namespace crossdevice::run
