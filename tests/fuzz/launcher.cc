// SPDX-License-Identifier: Apache-2.0
// The variables that launchers set, a line NAME=value each: every kind of resolver, and the choice among them, gives an identity that makes
// sense, or a ValueError. The first byte of the input is no variable: it says which launcher is believed to be there, and what a union is asked for.
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/comm/mpich_cluster_resolver.h"
#include "crossdevice/comm/open_mpi_cluster_resolver.h"
#include "crossdevice/comm/pmix_cluster_resolver.h"
#include "crossdevice/comm/slurm_cluster_resolver.h"
#include "crossdevice/comm/tf_config_cluster_resolver.h"
#include "crossdevice/comm/torchrun_cluster_resolver.h"
#include "crossdevice/comm/union_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "comm/environment_map.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

std::shared_ptr<ClusterResolver> make_resolver(std::size_t kind, const EnvironmentSource& source) {
  switch (kind) {
    case 0:
      return std::make_shared<EnvironmentClusterResolver>(source);
    case 1:
      return std::make_shared<TFConfigClusterResolver>(TFConfigOptions{.source = source});
    case 2:
      return std::make_shared<TorchrunClusterResolver>(source);
    case 3:
      return std::make_shared<OpenMpiClusterResolver>(source);
    case 4:
      return std::make_shared<PmixClusterResolver>(source);
    case 5:
      return std::make_shared<MpichClusterResolver>(source);
    case 6:
      return std::make_shared<SlurmClusterResolver>(source);
    default:
      return detect_cluster_resolver(source);
  }
}

template <class Call>
void value_or_error(Call call) {
  try {
    call();
  } catch (const ValueError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
  }
}

void check(const ClusterResolver& resolver) {
  value_or_error([&] {
    const WorkerIdentity identity = resolver.identity();
    try {
      validate(identity);
    } catch (const ValueError&) {
      FUZZ_FAIL("an identity that makes sense");
    }
    FUZZ_EXPECT(!to_string(identity).empty());
    if (identity.cluster_spec.has_value()) {
      FUZZ_EXPECT(ClusterSpec(identity.cluster_spec->tasks()) == *identity.cluster_spec);
    }
  });
  value_or_error([&] { (void)to_string(resolver.cluster_spec()); });
  value_or_error([&] { (void)resolver.task_type(); });
  value_or_error([&] { (void)resolver.task_id(); });
  value_or_error([&] { (void)resolver.master(); });
  value_or_error([&] { (void)resolver.environment(); });
  value_or_error([&] { (void)resolver.rpc_layer(); });
}

/// `how`: bits, which of its own the union has instead of what its first resolver says.
void check_union(const std::shared_ptr<const ClusterResolver>& first,
                 const std::shared_ptr<const ClusterResolver>& second, std::size_t how) {
  UnionClusterResolverOptions options;
  if ((how & 1U) != 0) options.task_type = "chief";
  if ((how & 2U) != 0) options.task_id = 1;
  if ((how & 4U) != 0) options.rpc_layer = "grpc";
  const UnionClusterResolver both({first, second}, options);
  check(both);
  value_or_error([&] { FUZZ_EXPECT(both.num_accelerators() == first->num_accelerators()); });
  value_or_error([&] {
    for (const ClusterTask& task : both.cluster_spec().tasks()) {
      FUZZ_EXPECT(both.master(task.job, task.index, "") == task.address);
      FUZZ_EXPECT(both.master(task.job, task.index).ends_with(task.address));
    }
  });
  try {
    if ((how & 8U) != 0) {
      (void)UnionClusterResolver({first, nullptr});
    } else {
      (void)UnionClusterResolver({});
    }
    FUZZ_FAIL("a union of nobody");
  } catch (const ValueError&) {
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  fuzz::silence_log();
  fuzz::Input input(data, size);
  const std::size_t choice = input.number<std::uint8_t>();
  const std::size_t kind = choice % 9;
  Variables variables;
  std::string rest = input.rest();
  for (std::size_t begin = 0; begin < rest.size();) {
    const std::size_t end = std::min(rest.find('\n', begin), rest.size());
    const std::string line = rest.substr(begin, end - begin);
    const std::size_t sign = line.find('=');
    if (sign != std::string::npos) {
      // No variable has a zero byte.
      variables[line.substr(0, sign)] = line.substr(sign + 1, line.find('\0', sign) - sign - 1);
    }
    begin = end + 1;
  }
  const EnvironmentSource source = source_of(variables);
  value_or_error([&] {
    const std::shared_ptr<ClusterResolver> resolver = make_resolver(kind, source);
    check(*resolver);
    const auto other = make_resolver((kind + 1) % 7, source);
    check_union(resolver, other, choice / 9);
  });
  return 0;
}
