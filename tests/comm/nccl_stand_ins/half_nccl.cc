// SPDX-License-Identifier: Apache-2.0
// A library that says it is NCCL 2.20.5, and lacks most of it.
extern "C" {
__attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 22005;
  return 0;
}
__attribute__((visibility("default"))) const char* ncclGetErrorString(int) { return ""; }
}
