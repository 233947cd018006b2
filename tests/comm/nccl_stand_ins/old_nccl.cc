// SPDX-License-Identifier: Apache-2.0
// A library that says it is NCCL 2.12.12.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 21212;
  return 0;
}
