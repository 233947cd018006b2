// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG's JSON: a configuration, or a ValueError; what its resolver says agrees with it.
#include "comm/detail/tf_config.h"

#include <string>

#include "crossdevice/comm/multi_worker_util.h"
#include "crossdevice/comm/tf_config_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "comm/environment_map.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

void check(const std::string& text) {
  const TFConfigClusterResolver resolver({.source = source_of({{"TF_CONFIG", text}})});
  try {
    const detail::TFConfig config = detail::parse_tf_config(text);
    const ClusterSpec& spec = config.cluster_spec;
    FUZZ_EXPECT(ClusterSpec(spec.tasks()) == spec);
    FUZZ_EXPECT(!config.task_index.has_value() || *config.task_index >= 0);
    for (const std::string& job : spec.jobs()) {
      FUZZ_EXPECT(static_cast<int>(spec.task_indices(job).size()) == spec.num_tasks(job));
    }
    FUZZ_EXPECT(resolver.cluster_spec() == spec);
    FUZZ_EXPECT(resolver.environment() == config.environment.value_or(""));
    FUZZ_EXPECT(!to_string(spec).empty());
  } catch (const ValueError&) {
  }
  try {
    const WorkerIdentity identity = resolver.identity();
    FUZZ_EXPECT(identity.rank >= 0 && identity.rank < identity.num_workers);
    if (identity.cluster_spec.has_value() && !identity.cluster_spec->empty() &&
        identity.job != "evaluator") {
      FUZZ_EXPECT(worker_count(*identity.cluster_spec, identity.job) == identity.num_workers);
    }
    (void)resolver.master();
  } catch (const ValueError&) {
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  std::string text = crossdevice::fuzz::text_of(data, size);
  if (text.find('\0') != std::string::npos) text.resize(text.find('\0'));  // as in a variable
  crossdevice::check(text);
  return 0;
}
