// SPDX-License-Identifier: Apache-2.0
/// Declares, parses and checks the command line.
#include "run/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/version.h"

#include "support/program.h"

namespace crossdevice::run {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxWorkersOnHosts = 65536;

constexpr const char* kHead =
    "Starts N workers of one job, on this machine or on several, each with the variables that tell "
    "it who it is, "
    "and shows their output line by line with the rank in front.\n"
    "usage: crossdevice-run -n N [OPTIONS] -- PROGRAM [ARGUMENTS...]\n"
    "       crossdevice-run --hosts A:4,B:4 [OPTIONS] -- PROGRAM [ARGUMENTS...]\n"
    "       crossdevice-run --merge-trace OUT PART...";

constexpr const char* kFooter = R"(
Each worker finds CROSSDEVICE_RANK, _NUM_WORKERS, _LOCAL_RANK, _LOCAL_NUM_WORKERS, _CHIEF_ADDRESS, _SECRET_FILE and _LAUNCHER in its
environment. Standard input is empty. Lines longer than 64 KiB are cut; a last line without an end gets one.

When a worker fails, the others get SIGTERM and, after the grace period, SIGKILL; not with --keep-going, where a worker that is still there 10 s after the others, and each
minute from then on, is named with its pid. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go to every
worker; after SIGINT and SIGTERM the grace period runs too. Nothing is left behind: no process, no file, no namespace, also when
crossdevice-run itself is killed.

--hosts and --hostfile: ranks go to the hosts in order, to each as many as it has slots (1 where none are given); -n may ask for fewer than there
are. Workers on this machine (localhost, its own names and addresses) are started directly. For every other host one remote shell runs
crossdevice-run there, which must be the same version, at the same path or in the PATH; the shell must log in without asking. Workers begin in this
directory, which must be there too, and find the host's own variables and, of this environment, CROSSDEVICE_*, NCCL_* and what -x names. The secret
and all else go over the shell's standard input. When this program or the connection ends, the workers there end too; where a cut network or a
crash keeps a host from hearing of it, or this program is suspended, after --host-silence-seconds. Rank 0 listens on the first host, at an address the
others must reach.

--trace: each worker writes a file beside FILE, which become one when the job has ended; those of other machines are brought here
before. Their clocks are compared with rank 0's while the job runs, and their times are moved by that; by the system's clocks where they never were.

--merge-trace OUT PART...: runs nothing, and makes one timeline of those that workers under mpirun, torchrun or srun have written
(CROSSDEVICE_TRACE=t.%r.%p.json), in this order. OUT must not exist; the parts stay.

--netns needs root and the programs ip and tc (Debian package iproute2); --rate needs a kernel with tc's token bucket filter. Each namespace
counts as a host (CROSSDEVICE_HOST_ID, CROSSDEVICE_SOCKET_IFNAME are set); the workers are dealt to them in contiguous blocks, and rank 0
listens in the first. The namespaces have names nowhere and end with the job; nothing leads from them to another network.

Exit codes: 0 all workers ended with 0, or one of them with --keep-going; the status of the worker that failed first
otherwise, 128 + S where signal S ended it. A worker that has crashed or was killed counts before those that end because of it. 2 the arguments
are wrong, 3 the job could not be started; 126 and 127 the program cannot be run, or is not there. 141 the reader of the output is gone.)";

void add_host_options(CLI::App& app, Arguments& arguments, std::string& hosts,
                      std::string& hostfile, double& silence_seconds) {
  CLI::Option* const list =
      app.add_option("--hosts", hosts, "Hosts and their slots: A:4,B:4 or A,B or USER@A:2");
  app.add_option("--hostfile", hostfile,
                 "A file with a host per line: A slots=4, or A:4; # comments")
      ->excludes(list);
  const std::string from_environment = process_environment()(kRunShellVariable).value_or("");
  if (!from_environment.empty()) arguments.remote_shell = from_environment;
  app.add_option("--remote-shell", arguments.remote_shell,
                 "What runs a command on a host, followed by the host and the command (default: "
                 "CROSSDEVICE_RUN_SHELL)")
      ->capture_default_str();
  app.add_option("--port", arguments.port, "Where rank 0 listens, with --hosts (default: any port)")
      ->check(CLI::Range(1, kMaxPort));
  app.add_option("--host-silence-seconds", silence_seconds,
                 "Another host's workers end when it has heard nothing of this program for so "
                 "long, with --hosts (0: never)")
      ->check(CLI::Range(1.0, 1e6) | CLI::IsMember({0.0}))
      ->capture_default_str();
  app.add_option("-x,--export", arguments.exported,
                 "NAME or NAME=VALUE: a variable for every worker; may be repeated")
      ->allow_extra_args(false);
}

void add_trace_options(CLI::App& app, Arguments& arguments) {
  constexpr int kMostFiles = 1 << 20;
  app.add_option("--trace", arguments.trace,
                 "Make one timeline of all workers' here, for chrome://tracing and ui.perfetto.dev "
                 "(default: CROSSDEVICE_TRACE, where it has no %p and no %r)")
      ->type_name("FILE");
  app.add_option("--merge-trace", arguments.traces_to_merge,
                 "Make one timeline, OUT, of several that are there, and run nothing")
      ->type_name("OUT PART")
      ->expected(2, kMostFiles);
}

/// What makes no sense beside --merge-trace is refused, so that nobody waits for a job that does not come.
void check_merge(const CLI::App& app, bool has_program) {
  const auto options = app.get_options([](const CLI::Option* each) {
    return each->count() > 0 && !each->check_name("--merge-trace");
  });
  if (!options.empty() || has_program) {
    throw programs::ArgumentError(
        fmt::format("--merge-trace runs nothing: it does not go with {}",
                    has_program ? "a program" : options.front()->get_name()));
  }
}

std::string describe_extra(const std::string& extra, bool has_dashes) {
  if (extra.starts_with('-')) {
    return fmt::format("{}: there is no such option{}", extra,
                       has_dashes ? "" : "; the program's own come behind two dashes");
  }
  if (has_dashes) return fmt::format("{}: not expected before the two dashes", extra);
  return fmt::format(
      "{}: not expected; the program comes behind two dashes: crossdevice-run -n 2 -- ./program",
      extra);
}

/// CLI11 finds "nan" in every range.
void require_number(const char* option, double value) {
  if (!std::isnan(value)) return;
  throw programs::ArgumentError(fmt::format("{}: expected a number, got nan", option));
}

/// How many workers the hosts take together.
void settle_hosts(Arguments& arguments, bool has_number) {
  int slots = 0;
  for (const Host& host : arguments.hosts) slots += host.slots;
  if (!has_number) arguments.num_workers = slots;
  if (arguments.num_workers > slots) {
    throw programs::ArgumentError(
        fmt::format("-n {}: the hosts have only {} slots", arguments.num_workers, slots));
  }
  if (arguments.num_namespaces > 0) {
    throw programs::ArgumentError("--netns makes hosts of its own: it does not go with --hosts");
  }
  if (arguments.remote_shell.find_first_not_of(" \t") == std::string::npos) {
    throw programs::ArgumentError("--remote-shell: expected a program");
  }
}

}  // namespace

double bits_per_second(const std::string& rate) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(rate.data() + rate.size() - end));
  double scale = 0;
  if (unit == "kbit") scale = 1e3;
  if (unit == "mbit") scale = 1e6;
  if (unit == "gbit") scale = 1e9;
  const double bits = static_cast<double>(number) * scale;
  if (error != std::errc{} || bits < 1e3 || bits > 1e12) {
    throw programs::ArgumentError(fmt::format(
        "--rate: expected a number and kbit, mbit or gbit, up to 1000gbit, got '{}'", rate));
  }
  return bits;
}

std::optional<Arguments> parse_arguments(int argc, const char* const* argv) {
  Arguments arguments;
  double grace_seconds = arguments.grace.count();
  double silence_seconds = arguments.silence.count();
  std::string hosts;
  std::string hostfile;
  bool is_plain = false;
  bool keeps_going = false;
  bool binds = false;
  CLI::App app{kHead, "crossdevice-run"};
  app.set_version_flag("--version", fmt::format("crossdevice-run {}", library_version_string()));
  app.footer(kFooter);
  const CLI::Option* const number =
      app.add_option("-n,--workers", arguments.num_workers,
                     "How many workers; with --hosts, default: as many as there are slots")
          ->check(CLI::Range(1, kMaxWorkersOnHosts));
  app.add_option("--grace-seconds", grace_seconds, "Between SIGTERM and SIGKILL")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--keep-going", keeps_going,
               "When a worker fails the others go on; the job succeeds if one of them does");
  app.add_flag("--bind", binds,
               "Give each worker cores of its own, as many as the others; nothing where there are "
               "fewer cores than workers");
  app.add_flag("--plain", is_plain,
               "Show standard output as it is, without the rank in front; standard error keeps it");
  app.add_option("--netns", arguments.num_namespaces,
                 "Put the workers into K network namespaces, as if on K hosts")
      ->check(CLI::Range(1, kMaxNamespaces));
  app.add_option("--rate", arguments.rate,
                 "Limit each namespace's link, each way: 200mbit, 1gbit (with --netns)");
  add_trace_options(app, arguments);
  add_host_options(app, arguments, hosts, hostfile, silence_seconds);

  // What follows "--" is the program's own, whatever it looks like.
  const char* const* const end = argv + argc;
  const char* const* const separator = std::find(argv, end, std::string_view("--"));
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    throw programs::ArgumentError(describe_extra(app.remaining().front(), separator != end));
  } catch (const CLI::ParseError& error) {
    throw programs::ArgumentError(error.what());
  }
  if (!arguments.traces_to_merge.empty()) {
    check_merge(app, separator != end);
    return arguments;
  }
  if (app.count("--hosts") > 0) arguments.hosts = parse_hosts(hosts);
  if (app.count("--hostfile") > 0) arguments.hosts = read_hostfile(hostfile);
  if (arguments.hosts.empty() && number->count() == 0) {
    throw programs::ArgumentError("--workers is required, or --hosts");
  }
  if (arguments.hosts.empty() && arguments.port > 0) {
    throw programs::ArgumentError("--port needs --hosts");
  }
  for (const char* const name : {"--remote-shell", "--host-silence-seconds"}) {
    if (arguments.hosts.empty() && app.count(name) > 0) {
      throw programs::ArgumentError(fmt::format("{} needs --hosts", name));
    }
  }
  if (arguments.hosts.empty() && arguments.num_workers > kMaxWorkers) {
    throw programs::ArgumentError(
        fmt::format("--workers: expected at most {} on one machine, got {}", kMaxWorkers,
                    arguments.num_workers));
  }
  if (!arguments.hosts.empty()) settle_hosts(arguments, number->count() > 0);
  if (separator == end || separator + 1 == end) {
    throw programs::ArgumentError("expected a program: crossdevice-run -n N -- PROGRAM ARGUMENTS");
  }
  arguments.command.assign(separator + 1, end);
  require_number("--grace-seconds", grace_seconds);
  require_number("--host-silence-seconds", silence_seconds);
  arguments.grace = std::chrono::duration<double>(grace_seconds);
  arguments.silence = std::chrono::duration<double>(silence_seconds);
  if (keeps_going) arguments.when_one_fails = WhenOneFails::KEEP_GOING;
  if (binds) arguments.binding = Binding::OWN_CORES;
  if (binds && !arguments.hosts.empty()) {
    throw programs::ArgumentError("--bind: with --hosts the workers are not bound");
  }
  if (is_plain) arguments.rank_prefix = RankPrefix::ERROR_OUTPUT;
  if (arguments.num_namespaces > arguments.num_workers) {
    throw programs::ArgumentError(fmt::format("--netns {}: there are only {} workers for them",
                                              arguments.num_namespaces, arguments.num_workers));
  }
  if (!arguments.rate.empty()) {
    (void)bits_per_second(arguments.rate);
    if (arguments.num_namespaces == 0) throw programs::ArgumentError("--rate needs --netns");
  }
  return arguments;
}

}  // namespace crossdevice::run
