// SPDX-License-Identifier: Apache-2.0
/// The end of communicators, on threads of their own: NCCL may never come back from it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// How long NCCL may take for an abort, or for the end of a whole clique: 10 s.
[[nodiscard]] std::chrono::nanoseconds nccl_grace();
/// For tests.
void set_nccl_grace(std::chrono::nanoseconds grace);

/// From now on who makes communicators of these GPUs waits, until reap() has come to its end or end_reaping() is called.
void begin_reaping(NcclClique::State& state);
void end_reaping(NcclClique::State& state);

/// Aborts the communicators of a clique that has broken, and sets its state when that has come to its end, or when the grace is over. Returns at once.
///
/// NCCL takes its resources back when every rank of the process has been aborted, so all are: from 2.28.7 on each is revoked first, which frees
/// nothing that a launch may still use; from 2.22 on they are aborted in one group; before that, each on a thread, because one may wait for another.
void reap(const std::shared_ptr<NcclClique::State>& state) noexcept;

/// Finalizes and destroys the communicators of a whole clique that nobody uses any more. Waits for it at most the grace, or not at all.
void end_clique(std::shared_ptr<NcclClique::State> state, bool waits) noexcept;

/// Drops a hold on a job, a clique's or an object's, on a thread of its own, where the last one says goodbye, and waits for the others. shutdown() waits for it as long as the
/// grace is.
void leave_job_beside(std::shared_ptr<void> hold) noexcept;

/// Aborts communicators that nobody has seen; may block.
void abort_communicators(NcclApi& nccl, const std::vector<NcclComm>& communicators) noexcept;

/// From the first call on, shutdown() waits for what is being aborted or destroyed, as long as the grace is: CUDA is left alone then.
void await_reapers_at_shutdown();

/// To be called before communicators are made, when CUDA and NCCL are loaded, and again when they have been: where main returns, or calls exit(), the process
/// waits for the same, and for the watchdog, before CUDA and NCCL end, which no thread inside them survives. No abort and no end of communicators begins from
/// then on.
void await_reapers_before_cuda_ends(bool has_made);

/// Until nothing on these GPUs is being aborted or destroyed.
///
/// Errors   FailedPreconditionError: one has not come back, and nobody is to use the GPU. DeadlineExceededError.
void await_reapers(const std::vector<GpuDevice*>& gpus, const Deadline& deadline);

}  // namespace crossdevice::detail
