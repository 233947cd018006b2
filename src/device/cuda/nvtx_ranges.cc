// SPDX-License-Identifier: Apache-2.0
// NVTX is in headers alone: it opens what the profiler names, and calls nobody where there is none.
#if defined(CROSSDEVICE_WITH_CUDA)

#include "device/detail/nvtx_ranges.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/trace.h"

namespace crossdevice::detail {
namespace {

nvtxDomainHandle_t domain() {
  static nvtxDomainHandle_t const handle = nvtxDomainCreateA("crossdevice");
  return handle;
}

void push(const TraceEvent& event) noexcept {
  constexpr std::size_t kLongestName = 64;
  std::array<char, kLongestName> name{};
  const TraceArguments& about = event.arguments;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): allocates nothing
  (void)std::snprintf(name.data(), name.size(), "%s #%" PRIu64, event.name, about.sequence);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = about.sequence != 0 ? name.data() : event.name;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = about.num_bytes;
  (void)nvtxDomainRangePushEx(domain(), &attributes);
}

void pop() noexcept { (void)nvtxDomainRangePop(domain()); }

constexpr SpanHook kRanges{.push = &push, .pop = &pop};

}  // namespace

void install_nvtx_ranges() {
  if (process_environment()("NVTX_INJECTION64_PATH").value_or("").empty()) return;
  set_span_hook(&kRanges);
}

}  // namespace crossdevice::detail

#endif
