// SPDX-License-Identifier: Apache-2.0
#include "run/host_agent.h"

#include <chrono>
#include <string>

#include <unistd.h>

#include "run/arguments.h"
#include "run/fields.h"
#include "run/host_job.h"
#include "run/host_workers.h"
#include "run/janitor.h"
#include "run/secret_file.h"
#include "run/supervisor.h"
#include "run/system_error.h"

namespace crossdevice::run {

int run_host_agent() {
  ::alarm(kPatienceSeconds);
  const HostJob job = receive_host_job(STDIN_FILENO);
  ::alarm(0);
  if (::chdir(job.directory.c_str()) != 0) {
    throw system_failure("change to the directory " + job.directory);
  }
  Arguments arguments;
  arguments.grace = std::chrono::duration<double>(job.grace_seconds);
  arguments.silence = std::chrono::duration<double>(job.silence_seconds);
  if (job.is_plain) arguments.rank_prefix = RankPrefix::ERROR_OUTPUT;
  if (job.keeps_going) arguments.when_one_fails = WhenOneFails::KEEP_GOING;
  const std::string path = secret_file_path();
  const Janitor janitor(path);
  Supervisor supervisor(arguments, janitor);
  supervisor.listen(STDIN_FILENO);
  const SecretFile secret(path, job.secret);
  start_host_workers(job, secret.path(), job.variables, supervisor);
  return supervisor.run();
}

}  // namespace crossdevice::run
