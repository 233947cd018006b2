// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/reduction_span.h"

namespace crossdevice::detail {

constinit const ReductionAlgorithm kDirectReduction("direct", "algorithm=\"direct\"");
constinit const ReductionAlgorithm kHierarchicalReduction("hierarchical_copy",
                                                          "algorithm=\"hierarchical_copy\"");
constinit const ReductionAlgorithm kScheduledReduction("scheduled", "algorithm=\"scheduled\"");
constinit const ReductionAlgorithm kGpuKernelReduction("gpu_kernels", "algorithm=\"gpu_kernels\"");
constinit const ReductionAlgorithm kNcclReduction("nccl", "algorithm=\"nccl\"");
constinit const ReductionAlgorithm kSharedMemoryReduction("shared_memory",
                                                          "algorithm=\"shared_memory\"");
constinit const ReductionAlgorithm kTwoLevelReduction("two_level", "algorithm=\"two_level\"");
constinit const ReductionAlgorithm kExchangeReduction("exchange", "algorithm=\"exchange\"");
constinit const ReductionAlgorithm kDoublingReduction("doubling", "algorithm=\"doubling\"");
constinit const ReductionAlgorithm kReplicaExchangeReduction("replica_exchange",
                                                             "algorithm=\"replica_exchange\"");
constinit const ReductionAlgorithm kShuffleReduction("shuffle", "algorithm=\"shuffle\"");
constinit const ReductionAlgorithm kHalvingDoublingReduction("rechd", "algorithm=\"rechd\"");
constinit const ReductionAlgorithm kRingReduction("ring", "algorithm=\"ring\"");

}  // namespace crossdevice::detail
