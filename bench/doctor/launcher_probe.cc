// SPDX-License-Identifier: Apache-2.0
/// Who started this process, and what it left.
#include <string>

#include "crossdevice/comm/detect_cluster_resolver.h"
#include "crossdevice/core/error.h"

#include "doctor/probes.h"

namespace crossdevice::doctor {

Findings probe_launcher() {
  Finding finding{.name = "launcher"};
  try {
    const WorkerIdentity self = detect_cluster_resolver()->identity();
    finding.facts = {{"launcher", self.launcher},
                     {"rank", self.rank},
                     {"num_workers", self.num_workers},
                     {"chief_address", self.chief_address}};
    finding.text = self.num_workers == 1 ? self.launcher : to_string(self);
    if (self.num_workers > 1 && self.chief_address.empty()) {
      finding.status = Status::FAILURE;
      finding.text += "; nobody says where rank 0 listens";
      finding.advice = "set CROSSDEVICE_CHIEF_ADDRESS=HOST:PORT, the same for every worker";
    }
  } catch (const ValueError& error) {
    finding.status = Status::FAILURE;
    finding.text = error.what();
    finding.advice =
        "set what is missing, or unset what is left of another launcher; or say whom to believe: "
        "CROSSDEVICE_LAUNCHER=crossdevice, tf_config, torchrun, openmpi, "
        "pmix, mpich, slurm or none";
  }
  return {finding};
}

}  // namespace crossdevice::doctor
