// SPDX-License-Identifier: Apache-2.0
// Spans as a profiler sees them, over the real NVTX headers and a stand-in for the profiler.
#include "device/detail/nvtx_ranges.h"

#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "crossdevice/core/trace.h"

namespace crossdevice {
namespace {

TEST(NvtxRangesTest, ASpanIsARangeWithItsBytesAndNumber) {
  setenv("NVTX_INJECTION64_PATH", CROSSDEVICE_NVTX_STAND_IN, 1);
  detail::install_nvtx_ranges();
  {
    const TraceSpan operation("reduce", "operation",
                              [] { return TraceArguments{.sequence = 12, .num_bytes = 4096}; });
    const TraceSpan communicate("communicate", "collective",
                                [] { return TraceArguments{.num_bytes = 64}; });
  }
  { const TraceSpan step("step"); }
  detail::set_span_hook(nullptr);
  void* const profiler = ::dlopen(CROSSDEVICE_NVTX_STAND_IN, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(profiler, nullptr) << "NVTX has not opened the stand-in";
  const auto record = reinterpret_cast<const char* (*)()>(::dlsym(profiler, "nvtx_record"));
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(std::string(record()),
            "domain crossdevice\n"
            "push reduce #12, 4096\n"
            "push communicate #12, 64\n"
            "pop\npop\n"
            "push step, 0\npop\n");
}

TEST(NvtxRangesTest, WithoutAProfilerNobodyWantsSpans) {
  unsetenv("NVTX_INJECTION64_PATH");
  unsetenv("CROSSDEVICE_TRACE");
  detail::install_nvtx_ranges();
  const TraceSpan span("reduce", "operation");
  EXPECT_FALSE(span.is_open());
}

}  // namespace
}  // namespace crossdevice
