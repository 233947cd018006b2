// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/collective_engine.h"

namespace crossdevice {

CollectiveEngine::~CollectiveEngine() = default;

}  // namespace crossdevice
