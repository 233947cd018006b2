// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/call_details.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/dtype.h"

namespace crossdevice::detail {
namespace {

/// Unless those of a larger call are among them already, of which these are a part.
void add_values(CallDetails& details, std::span<const CollectiveValue> values) {
  const bool are_told = std::any_of(details.begin(), details.end(), [](const std::string& each) {
    return each.starts_with("value ");
  });
  if (are_told) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CollectiveValue& each = values[i];
    if (each.inputs.empty()) continue;
    std::string text = fmt::format("value {}: {} {}", i, each.inputs[0].num_elements(),
                                   to_string(each.inputs[0].dtype()));
    if (each.inputs.size() != 1 || each.outputs.size() != 1) {
      text += fmt::format(" in {} and to {} places", each.inputs.size(), each.outputs.size());
    }
    details.push_back(std::move(text));
  }
}

}  // namespace

CallDetails details_of(const CollectiveRequest& request) {
  CallDetails details{
      request.deterministic ? "deterministic" : "not deterministic",
      request.grouping_independent ? "independent of the grouping" : "dependent on the grouping"};
  if (request.particulars != nullptr) request.particulars->describe(details);
  return details;
}

CallDetails details_of(const CollectiveRequest& request, std::span<const CollectiveValue> values) {
  CallDetails details = details_of(request);
  add_values(details, values);
  return details;
}

void TellingValues::describe(CallDetails& details) const {
  if (request_.particulars != nullptr) request_.particulars->describe(details);
  add_values(details, values_);
}

void TellingRoot::describe(CallDetails& details) const {
  if (request_.particulars != nullptr) request_.particulars->describe(details);
  details.push_back(fmt::format("root {}", root_));
  details.push_back(
      fmt::format("value 0: {} {}", tensor_.num_elements(), to_string(tensor_.dtype())));
}

}  // namespace crossdevice::detail
