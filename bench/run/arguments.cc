// SPDX-License-Identifier: Apache-2.0
/// Declares, parses and checks the command line.
#include "run/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/version.h"

#include "support/program.h"

namespace crossdevice::run {
namespace {

constexpr const char* kHead =
    "Starts N workers of one job on this machine, each with the variables that tell it who it is, "
    "and shows their output line by line with the rank in front.\n"
    "usage: crossdevice-run -n N [OPTIONS] -- PROGRAM [ARGUMENTS...]";

constexpr const char* kFooter = R"(
Each worker finds CROSSDEVICE_RANK, _NUM_WORKERS, _LOCAL_RANK, _LOCAL_NUM_WORKERS, _CHIEF_ADDRESS, _SECRET_FILE and _LAUNCHER in its
environment. Standard input is empty. Lines longer than 64 KiB are cut; a last line without an end gets one.

When a worker fails, the others get SIGTERM and, after the grace period, SIGKILL; not with --keep-going. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go to every
worker; after SIGINT and SIGTERM the grace period runs too. Nothing is left behind: no process, no file, no namespace, also when
crossdevice-run itself is killed.

--netns needs root and the programs ip and tc (Debian package iproute2); --rate needs a kernel with tc's token bucket filter. Each namespace
counts as a host (CROSSDEVICE_HOST_ID, CROSSDEVICE_SOCKET_IFNAME are set); the workers are dealt to them in contiguous blocks, and rank 0
listens in the first. The namespaces have names nowhere and end with the job; nothing leads from them to another network.

Exit codes: 0 all workers ended with 0, or one of them with --keep-going; the status of the worker that failed first
otherwise, 128 + S where signal S ended it. A worker that has crashed or was killed counts before those that end because of it. 2 the arguments
are wrong, 3 the job could not be started; 126 and 127 the program cannot be run, or is not there. 141 the reader of the output is gone.)";

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
  std::string hosts;
  bool is_plain = false;
  bool keeps_going = false;
  CLI::App app{kHead, "crossdevice-run"};
  app.set_version_flag("--version", fmt::format("crossdevice-run {}", library_version_string()));
  app.footer(kFooter);
  app.add_option("-n,--workers", arguments.num_workers, "How many workers")
      ->check(CLI::Range(1, kMaxWorkers))
      ->required();
  app.add_option("--grace-seconds", grace_seconds, "Between SIGTERM and SIGKILL")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--keep-going", keeps_going,
               "When a worker fails the others go on; the job succeeds if one of them does");
  app.add_flag("--plain", is_plain,
               "Show standard output as it is, without the rank in front; standard error keeps it");
  app.add_option("--netns", arguments.num_namespaces,
                 "Put the workers into K network namespaces, as if on K hosts")
      ->check(CLI::Range(1, kMaxNamespaces));
  app.add_option("--rate", arguments.rate,
                 "Limit each namespace's link, each way: 200mbit, 1gbit (with --netns)");
  app.add_option("--hosts", hosts, "Not in this version: workers on other hosts");

  // What follows "--" is the program's own, whatever it looks like.
  const char* const* const end = argv + argc;
  const char* const* const separator = std::find(argv, end, std::string_view("--"));
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw programs::ArgumentError(error.what());
  }
  if (!hosts.empty()) {
    throw UnimplementedError(
        "--hosts is not in this version: all workers run on this machine. Start one "
        "process per worker on the hosts yourself, with CROSSDEVICE_RANK, "
        "CROSSDEVICE_NUM_WORKERS, CROSSDEVICE_CHIEF_ADDRESS and CROSSDEVICE_SECRET_FILE set, or "
        "use a launcher that reaches them (mpirun, srun, torchrun)");
  }
  if (separator == end || separator + 1 == end) {
    throw programs::ArgumentError("expected a program: crossdevice-run -n N -- PROGRAM ARGUMENTS");
  }
  arguments.command.assign(separator + 1, end);
  arguments.grace = std::chrono::duration<double>(grace_seconds);
  if (keeps_going) arguments.when_one_fails = WhenOneFails::KEEP_GOING;
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
