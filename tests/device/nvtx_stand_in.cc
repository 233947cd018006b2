// SPDX-License-Identifier: Apache-2.0
// What a profiler is to NVTX: a library that takes its functions' places. It keeps what is called.
#include <cstdint>
#include <string>

#include <nvtx3/nvToolsExt.h>

namespace {

std::string& record() {
  static std::string text;
  return text;
}

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  record() += std::string("domain ") + name + "\n";
  static int handle = 0;
  return reinterpret_cast<nvtxDomainHandle_t>(&handle);
}

int NVTX_API push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  record() += std::string("push ") + attributes->message.ascii + ", " +
              std::to_string(attributes->payload.ullValue) + "\n";
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t /*domain*/) {
  record() += "pop\n";
  return 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const char* nvtx_record() { return record().c_str(); }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
}
