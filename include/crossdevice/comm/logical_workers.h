// SPDX-License-Identifier: Apache-2.0
/// Whose devices are this process's, once it is one worker of several.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "crossdevice/core/export.h"

namespace crossdevice {

/// Workers for which this process stands besides its own task, "/job:worker/task:1": devices with these labels are its logical devices too, so that one
/// process may hold the values of several workers (TF's in-graph replication) though it is one of several itself. Replaces what was said before.
///
/// Until a process joins a cluster of several workers, every job, replica and task is its own. From then on it is its own task, those given here, and the
/// labels that a bare "CPU:0" gets (job localhost); a device of any other is another process's, and every op refuses it.
///
/// Errors   ValueError: not a job and a task, or with a device; then nothing has changed.
/// Threads  any.
CROSSDEVICE_EXPORT void set_logical_workers(std::span<const std::string> workers);
inline void set_logical_workers(std::initializer_list<std::string> workers) {
  set_logical_workers(std::span<const std::string>(workers.begin(), workers.size()));
}

}  // namespace crossdevice
