// SPDX-License-Identifier: Apache-2.0
#include "run/job.h"

#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "run/janitor.h"
#include "run/port_reservation.h"
#include "run/secret_file.h"
#include "run/supervisor.h"
#include "run/worker_environment.h"
#include "run/worker_process.h"

namespace crossdevice::run {

int run_job(const Arguments& arguments) {
  if (arguments.num_namespaces > 0) throw UnimplementedError("--netns is not in this version");
  // The janitor first: it is to hold nothing open, and to know the file before there is one.
  const std::string path = secret_file_path();
  const Janitor janitor(path);
  Supervisor supervisor(arguments.grace, janitor);
  const SecretFile secret(path);
  const PortReservation port;
  for (int rank = 0; rank < arguments.num_workers; ++rank) {
    WorkerSetting setting;
    setting.command = arguments.command;
    setting.environment = environment_of({.rank = rank,
                                          .num_workers = arguments.num_workers,
                                          .local_rank = rank,
                                          .local_num_workers = arguments.num_workers,
                                          .chief_address = fmt::format("127.0.0.1:{}", port.port()),
                                          .secret_file = secret.path()},
                                         environ);
    supervisor.start(std::move(setting));
  }
  return supervisor.run();
}

}  // namespace crossdevice::run
