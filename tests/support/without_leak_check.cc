// SPDX-License-Identifier: Apache-2.0
// For programs whose processes end while a thread of UCX ends too: LeakSanitizer's tracer reads that thread's storage, and crashes itself on a busy machine ("Tracer
// caught signal 11"; google/sanitizers#1170). Everything else that AddressSanitizer looks for is looked for.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
