// SPDX-License-Identifier: Apache-2.0
#include "run/host_workers.h"

#include <utility>

#include <unistd.h>

#include "run/forwarded_variables.h"
#include "run/worker_environment.h"

namespace crossdevice::run {

void start_host_workers(const HostJob& job, const std::string& secret_file,
                        const std::vector<std::string>& variables, Supervisor& supervisor) {
  const std::vector<std::string> inherited = with_variables(environ, variables);
  for (int local_rank = 0; local_rank < job.num_local_workers; ++local_rank) {
    WorkerPlace place;
    place.rank = job.first_rank + local_rank;
    place.num_workers = job.num_workers;
    place.local_rank = local_rank;
    place.local_num_workers = job.num_local_workers;
    place.chief_address = job.chief_address;
    place.secret_file = secret_file;
    WorkerSetting setting;
    setting.command = job.command;
    setting.environment = environment_of(place, inherited);
    supervisor.start(std::move(setting), place.rank);
  }
}

}  // namespace crossdevice::run
