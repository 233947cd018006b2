// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/communication_options.h"

#include <cctype>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

namespace crossdevice {

std::string_view to_string(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::AUTO:
      return "AUTO";
    case CommunicationImplementation::RING:
      return "RING";
    case CommunicationImplementation::NCCL:
      return "NCCL";
  }
  return "?";
}

CommunicationImplementation communication_implementation_from_string(std::string_view name) {
  std::string upper;
  for (const char c : name) {
    upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  for (const auto implementation :
       {CommunicationImplementation::AUTO, CommunicationImplementation::RING,
        CommunicationImplementation::NCCL}) {
    if (upper == to_string(implementation)) return implementation;
  }
  throw ValueError(fmt::format("implementation must be AUTO, RING or NCCL, not '{}'", name));
}

void CommunicationOptions::throw_invalid() const {
  if (bytes_per_pack < 0) {
    throw ValueError(
        fmt::format("bytes_per_pack must be 0 or more, not {}", bytes_per_pack.value()));
  }
  throw ValueError(
      fmt::format("timeout_seconds must be 0 or more, not {}", timeout_seconds.value_or(0)));
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& other) const {
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds.has_value()) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != CommunicationImplementation::AUTO) {
    merged.implementation = other.implementation;
  }
  if (other.deterministic) merged.deterministic = true;
  if (other.grouping_independent) merged.grouping_independent = true;
  return merged;
}

Deadline CommunicationOptions::deadline() const {
  if (timeout_seconds.has_value()) return Deadline::after_timeout_seconds(timeout_seconds);
  const std::optional<double>& by_default = environment().default_timeout_seconds;
  return by_default.has_value() ? Deadline::after_timeout_seconds(by_default) : Deadline::never();
}

}  // namespace crossdevice
