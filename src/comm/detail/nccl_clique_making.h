// SPDX-License-Identifier: Apache-2.0
/// How the communicators of a clique come to be.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/deadline.h"

#include "comm/detail/nccl_clique_state.h"

namespace crossdevice::detail {

/// How long making a clique may take.
[[nodiscard]] Deadline nccl_making_deadline(std::optional<double> timeout_seconds);

/// A state without communicators.
///
/// Errors   UnavailableError: there is no NCCL, or two devices lie on one GPU. ValueError: no devices, or one that is no GPU of this process.
[[nodiscard]] std::shared_ptr<NcclClique::State> prepare_clique(const Devices& devices);

/// What all ranks of one clique need, in time as below.
///
/// Errors   NCCL's. DeadlineExceededError.
[[nodiscard]] NcclUniqueId make_unique_id(const std::shared_ptr<NcclClique::State>& state,
                                          const Deadline& deadline);

/// Makes the communicators of `state`, all in one group, on a thread of its own: NCCL offers no way to end that early. When the deadline passes, the
/// thread goes on alone and aborts what it has made when NCCL comes back.
///
/// Errors   UnavailableError: NCCL's text. DeadlineExceededError.
void make_communicators(const std::shared_ptr<NcclClique::State>& state, const NcclUniqueId& id,
                        const Deadline& deadline);

/// A tiny all-reduce, so that connections are made now: not inside a capture, where NCCL may not allocate, and not inside an operation with a deadline.
/// What fails breaks the clique.
///
/// Ranks    collective.
void warm_up(NcclClique& clique, const Deadline& deadline);

}  // namespace crossdevice::detail
