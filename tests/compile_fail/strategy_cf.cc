// SPDX-License-Identifier: Apache-2.0
// What must not compile against strategies and replica contexts.
#include "crossdevice/strategy/mirrored_strategy.h"
#include "crossdevice/strategy/mirrored_variable.h"

namespace cd = crossdevice;

void compiles(cd::MirroredStrategy& strategy, const cd::PerReplica& value,
              const cd::Tensor& tensor) {
  (void)strategy.run([](cd::ReplicaContext&, const cd::Tensor&) { return 1; }, value);
  strategy.run([&](cd::ReplicaContext& context) { (void)context.all_reduce("SUM", tensor); });
}

#if defined(REPLICA_FUNCTION_WITHOUT_CONTEXT)  // error: no matching
void without_context(cd::MirroredStrategy& strategy) {
  strategy.run([] {});
}
#endif

#if defined(REPLICA_ARGUMENT_OF_ANOTHER_TYPE)  // error: no matching
void another_type(cd::MirroredStrategy& strategy, const cd::PerReplica& value) {
  strategy.run([](cd::ReplicaContext&, int) {}, value);
}
#endif

#if defined(ALL_REDUCE_OF_A_NUMBER)  // error: no matching
float of_a_number(cd::ReplicaContext& context) { return context.all_reduce("SUM", 1.0F); }
#endif

#if defined(ALL_REDUCE_OF_A_NEST_WITH_A_NUMBER)  // error: no matching
void of_a_nest(cd::ReplicaContext& context, const cd::Tensor& tensor) {
  (void)context.all_reduce("SUM", std::pair(tensor, 1));
}
#endif

#if defined(ALL_REDUCE_OF_A_PER_REPLICA)  // error: no matching
void of_a_per_replica(cd::ReplicaContext& context, const cd::PerReplica& value) {
  (void)context.all_reduce("SUM", value);
}
#endif

#if defined(COPIES_A_STRATEGY)  // error: deleted
cd::MirroredStrategy copied(const cd::MirroredStrategy& strategy) { return strategy; }
#endif

#if defined(REDUCE_WITHOUT_AN_AXIS)  // error: no matching
cd::Tensor without_axis(cd::MirroredStrategy& strategy, const cd::PerReplica& value) {
  return strategy.reduce("SUM", value);
}
#endif

#if defined(ASSIGNS_TEXT)  // error: conversion|convert|could not bind
void assigns_text(cd::MirroredVariable& variable) { variable.assign("5"); }
#endif
