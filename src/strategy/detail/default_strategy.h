// SPDX-License-Identifier: Apache-2.0
/// What stands in for a strategy outside any scope: one replica on CPU:0.
#pragma once

#include "crossdevice/strategy/replica_context.h"
#include "crossdevice/strategy/strategy.h"

namespace crossdevice::detail {

/// Never destroyed: other static objects may use it to the end.
[[nodiscard]] Strategy& default_strategy();
/// The context of its replica, for code that asks for one outside run. Its calls have nobody to wait for, and any thread may make them.
[[nodiscard]] ReplicaContext& default_replica_context();

}  // namespace crossdevice::detail
