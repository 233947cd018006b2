// SPDX-License-Identifier: Apache-2.0
#include "run/job_on_hosts.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/comm/reserved_port.h"

#include "run/forwarded_variables.h"
#include "run/host_job.h"
#include "run/host_workers.h"
#include "run/janitor.h"
#include "run/own_addresses.h"
#include "run/remote_shell.h"
#include "run/remote_trace.h"
#include "run/secret_file.h"
#include "run/supervisor.h"

namespace crossdevice::run {
namespace {

// Above what Linux gives out by itself, so that on another host, where nothing can be reserved, a port is hardly ever taken.
constexpr int kFirstRemotePort = 61440;
constexpr int kLastRemotePort = 65000;

/// Where rank 0 listens; on this machine the port stays reserved.
struct ChiefPlace {
  std::optional<detail::ReservedPort> reservation{};
  std::string address{};
};

ChiefPlace chief_place(const std::vector<HostShare>& shares, int wanted_port) {
  ChiefPlace place;
  const HostShare& first = shares.front();
  std::string host = first.name.substr(first.name.find('@') + 1);
  if (first.is_local) host = shares.size() == 1 ? "127.0.0.1" : own_address(first.name);
  int port = wanted_port;
  if (port == 0 && first.is_local) {
    port = place.reservation.emplace(detail::ReservedPort::Reach::ALL_INTERFACES).number();
  } else if (port == 0) {
    std::random_device random;
    port = std::uniform_int_distribution<int>(kFirstRemotePort, kLastRemotePort)(random);
  }
  const bool is_v6 = host.find(':') != std::string::npos;
  place.address = fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
  return place;
}

HostJob job_for(const HostShare& share, const Arguments& arguments) {
  HostJob job;
  job.first_rank = share.first_rank;
  job.num_local_workers = share.num_workers;
  job.num_workers = arguments.num_workers;
  job.grace_seconds = arguments.grace.count();
  job.silence_seconds = arguments.silence.count();
  job.is_plain = arguments.rank_prefix == RankPrefix::ERROR_OUTPUT;
  job.keeps_going = arguments.when_one_fails == WhenOneFails::KEEP_GOING;
  job.directory = std::filesystem::current_path();
  job.variables = forwarded_variables(environ, arguments.exported);
  job.command = arguments.command;
  return job;
}

}  // namespace

std::vector<HostShare> share_out(const std::vector<Host>& hosts, int num_workers) {
  std::vector<HostShare> shares;
  shares.reserve(hosts.size());
  for (const Host& host : hosts) {
    const bool is_local = is_this_machine(host.name);
    const auto known = std::find_if(shares.begin(), shares.end(), [&](const HostShare& share) {
      return share.name == host.name || (share.is_local && is_local);
    });
    if (known == shares.end()) {
      shares.push_back({host.name, 0, host.slots, is_local});
    } else {
      known->num_workers += host.slots;
    }
  }
  int first_rank = 0;
  for (HostShare& share : shares) {
    share.first_rank = first_rank;
    share.num_workers = std::min(share.num_workers, num_workers - first_rank);
    first_rank += share.num_workers;
  }
  std::erase_if(shares, [](const HostShare& share) { return share.num_workers == 0; });
  return shares;
}

int run_job_on_hosts(const Arguments& arguments, const std::string& trace) {
  const std::vector<HostShare> shares = share_out(arguments.hosts, arguments.num_workers);
  const std::string path = secret_file_path();
  const Janitor janitor(path);
  Supervisor supervisor(arguments, janitor);
  const std::string secret = random_secret();
  const SecretFile secret_file(path, secret);
  const ChiefPlace chief = chief_place(shares, arguments.port);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  for (const HostShare& share : shares) {
    HostJob job = job_for(share, arguments);
    job.chief_address = chief.address;
    if (share.is_local) {
      start_host_workers(job, path, requested_variables(environ, arguments.exported), supervisor);
      continue;
    }
    job.secret = secret;
    WorkerSetting setting;
    setting.command = remote_command(arguments.remote_shell, share.name, program, "--host-agent");
    setting.environment = with_variables(environ, {});
    supervisor.start_remote(std::move(setting), share.name, encode(job));
  }
  const int code = supervisor.run();
  if (!trace.empty()) fetch_trace_parts(trace, shares, arguments.remote_shell, janitor);
  return code;
}

}  // namespace crossdevice::run
