// SPDX-License-Identifier: Apache-2.0
/// Every environment variable of ours, in one place.
///
/// What a program sets is a member of Environment. What a launcher sets for one worker has a name below (k...Variable) and is
/// read by the cluster resolvers of comm, anew each time.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "crossdevice/core/export.h"
#include "crossdevice/core/log.h"

namespace crossdevice {

/// What the variables say. An unset and an empty variable mean the default.
struct CROSSDEVICE_EXPORT Environment {
  /// CROSSDEVICE_CPU_DEVICES: number of logical host devices CPU:0, CPU:1, ... (1 to 4096;
  /// default: 64).
  int cpu_devices = 64;
  /// CROSSDEVICE_LOGICAL_GPUS: devices that each GPU is split into (1 to 4096; default: 1).
  int logical_gpus = 1;
  /// CROSSDEVICE_NUM_THREADS: threads that reduce on hosts, the caller included (1 to 4096;
  /// default: the cores that the main thread's affinity mask admits).
  int num_threads = 1;
  /// CROSSDEVICE_DEFAULT_TIMEOUT: deadline in seconds of operations that set none (default: none;
  /// 0 means none too).
  std::optional<double> default_timeout_seconds = std::nullopt;
  /// CROSSDEVICE_STRICT: 1 makes an unavailable implementation an error; 0 (default) takes the
  /// documented fallback.
  bool strict = false;
  /// CROSSDEVICE_LOG_LEVEL: the lowest severity that is written: info, warning (default), failure,
  /// or none (empty here). CROSSDEVICE_LOG is another name for it, read where this one is not set.
  std::optional<LogSeverity> log_level = LogSeverity::WARNING;
  /// CROSSDEVICE_COUNTERS: 0 counts nothing (see counters.h); 1 is the default.
  bool counters = true;
  /// CROSSDEVICE_TUNING_FILE: rank 0's file with the links, or with the algorithms to take (see all_reduce_choice.h; default: none,
  /// the links are measured, as they are where not every size has an algorithm).
  std::string tuning_file{};
  /// CROSSDEVICE_TRANSPORT: what carries messages between machines, "tcp" or "ucx" (see message_transport.h; default: TCP).
  std::string transport{};
  /// CROSSDEVICE_TLS: 1 encrypts what workers say to each other over TCP, with TLS 1.3 and a key from CROSSDEVICE_SECRET_FILE; all workers must agree
  /// (default: 0).
  bool tls = false;
  /// CROSSDEVICE_NCCL_LIBRARY: the file that is loaded as NCCL (default: the first libnccl.so.2, see nccl_library.h).
  std::string nccl_library{};
  /// CROSSDEVICE_LAUNCH_ORDER: "agreed" (default): where several objects of the same workers share GPUs, workers agree on the order in which their calls of NCCL are
  /// launched; "program": the program sees to it that this is one order on all workers, by calling from one thread, say.
  std::string launch_order = "agreed";
  /// CROSSDEVICE_FLIGHT_RECORD: the file that the last operations on GPUs are written to when one fails, "%p" in it being the process's
  /// number (see flight_record.h; default: none).
  std::string flight_record{};
  /// CROSSDEVICE_TRACE: the file that a timeline is written to (see trace.h), "%p" in it being the process's number, "%r" the rank that the launcher gave
  /// (CROSSDEVICE_RANK; "pid" and the process's number without one). Where another process is writing to that file already, this one appends its number to
  /// the name and says so. crossdevice-run makes one file of all workers' (default: none).
  std::string trace{};
};

/// The variables of this process, read on the first call; setting one later has no effect.
///
/// Errors   ValueError: a variable holds what it may not hold; says which, what is allowed and what
///          came. Nothing is kept then, so that the next call reads again.
/// Threads  any.
[[nodiscard]] CROSSDEVICE_EXPORT const Environment& environment();

/// The variables as `lookup` gives them (std::getenv's contract): what environment() does with the
/// real ones.
///
/// Errors   ValueError: as environment().
[[nodiscard]] CROSSDEVICE_EXPORT Environment
parse_environment(const char* (*lookup)(const char* name));

/// Where a variable is looked up: its text, nothing where it is unset. Tests give a map's.
using EnvironmentSource = std::function<std::optional<std::string>(const std::string& name)>;

/// The source that reads this process's variables, at every call.
///
/// Threads  any, as long as nobody changes the environment meanwhile.
[[nodiscard]] CROSSDEVICE_EXPORT EnvironmentSource process_environment();

/// This worker's rank, from 0; with it set, CROSSDEVICE_NUM_WORKERS must be too.
inline constexpr const char* kRankVariable = "CROSSDEVICE_RANK";
/// How many workers there are.
inline constexpr const char* kNumWorkersVariable = "CROSSDEVICE_NUM_WORKERS";
/// This worker's place among those on its host, from 0; with it set, CROSSDEVICE_LOCAL_NUM_WORKERS must be too.
inline constexpr const char* kLocalRankVariable = "CROSSDEVICE_LOCAL_RANK";
/// How many of the workers are on this host.
inline constexpr const char* kLocalNumWorkersVariable = "CROSSDEVICE_LOCAL_NUM_WORKERS";
/// "host:port" where rank 0 listens for the others; wins over what torchrun, Open MPI or Slurm say, and is what MPICH and PMIx lack.
inline constexpr const char* kChiefAddressVariable = "CROSSDEVICE_CHIEF_ADDRESS";
/// Whose variables say who this worker is: crossdevice, tf_config, torchrun, openmpi, pmix, mpich, slurm or none (default: all that
/// are there are asked, and must agree).
inline constexpr const char* kLauncherVariable = "CROSSDEVICE_LAUNCHER";
/// A file for its owner only, this user or root, with the job's secret, 16 random bytes or more; needed unless rank 0 listens at a loopback address.
inline constexpr const char* kSecretFileVariable = "CROSSDEVICE_SECRET_FILE";
/// The network interfaces, separated by commas, whose addresses this worker tells the others; default: those that NCCL_SOCKET_IFNAME or
/// GLOO_SOCKET_IFNAME leaves, or else all that are not loopback.
inline constexpr const char* kSocketInterfaceVariable = "CROSSDEVICE_SOCKET_IFNAME";
/// Workers with equal texts share a machine (its memory and its loopback); default: what the kernel says.
inline constexpr const char* kHostIdVariable = "CROSSDEVICE_HOST_ID";
/// What crossdevice-run starts workers on other hosts with, "ssh -p 2222"; its option --remote-shell comes before it.
inline constexpr const char* kRunShellVariable = "CROSSDEVICE_RUN_SHELL";

}  // namespace crossdevice
