// SPDX-License-Identifier: Apache-2.0
// A shared object of a stranger's, with hidden visibility, that throws each kind of error for error_border_test.
#include "crossdevice/core/error.h"
#include "crossdevice/core/shape.h"

extern "C" __attribute__((visibility("default"))) void crossdevice_test_throw(int kind) {
  using namespace crossdevice;
  const OpErrorDetails details{.operation = {.kind = "reduce", .sequence = 7},
                               .culprits = {RankInfo{.rank = 2}}};
  switch (kind) {
    case 0:
      throw ValueError("thrown by the module");
    case 1:
      throw CancelledError("thrown by the module", details);
    case 2:
      throw DeadlineExceededError("thrown by the module", details);
    case 3:
      throw FailedPreconditionError("thrown by the module", details);
    case 4:
      throw AbortedError("thrown by the module", details);
    case 5:
      throw UnavailableError("thrown by the module", details);
    case 6:
      throw UnimplementedError("thrown by the module", details);
    case 7:
      throw ResourceExhaustedError("thrown by the module", details);
    case 8:
      throw InternalError("thrown by the module", details);
    case 9:
      (void)Shape({-1});  // the library throws, through the module
      break;
    default:
      break;
  }
}
