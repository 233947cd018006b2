// SPDX-License-Identifier: Apache-2.0
#include "run/host_agent.h"

#include <chrono>
#include <string>
#include <utility>

#include <unistd.h>

#include "run/arguments.h"
#include "run/forwarded_variables.h"
#include "run/host_job.h"
#include "run/janitor.h"
#include "run/secret_file.h"
#include "run/supervisor.h"
#include "run/system_error.h"
#include "run/worker_environment.h"

namespace crossdevice::run {

int run_host_agent() {
  const HostJob job = receive_host_job(STDIN_FILENO);
  if (::chdir(job.directory.c_str()) != 0) {
    throw system_failure("change to the directory " + job.directory);
  }
  Arguments arguments;
  arguments.grace = std::chrono::duration<double>(job.grace_seconds);
  if (job.is_plain) arguments.rank_prefix = RankPrefix::ERROR_OUTPUT;
  if (job.keeps_going) arguments.when_one_fails = WhenOneFails::KEEP_GOING;
  const std::string path = secret_file_path();
  const Janitor janitor(path);
  Supervisor supervisor(arguments, janitor);
  supervisor.listen(STDIN_FILENO);
  const SecretFile secret(path, job.secret);
  for (int local_rank = 0; local_rank < job.num_local_workers; ++local_rank) {
    WorkerPlace place;
    place.rank = job.first_rank + local_rank;
    place.num_workers = job.num_workers;
    place.local_rank = local_rank;
    place.local_num_workers = job.num_local_workers;
    place.chief_address = job.chief_address;
    place.secret_file = secret.path();
    WorkerSetting setting;
    setting.command = job.command;
    setting.environment = environment_of(place, with_variables(environ, job.variables));
    supervisor.start(std::move(setting), place.rank);
  }
  return supervisor.run();
}

}  // namespace crossdevice::run
