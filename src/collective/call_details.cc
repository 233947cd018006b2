// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/call_details.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace crossdevice::detail {
namespace {

/// Unless those of a larger call are among them already, of which these are a part.
void add_values(CallDetails& details, std::span<const CollectiveValue> values) {
  if (std::any_of(details.begin(), details.end(), is_value_detail)) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CollectiveValue& each = values[i];
    if (each.inputs.empty()) continue;
    const Tensor& first = each.inputs[0];
    std::string text = value_detail(i, std::to_string(first.num_elements()), first.dtype());
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

void Telling::describe(CallDetails& details) const {
  if (request_.particulars != nullptr) request_.particulars->describe(details);
  add_own(details);
}

CollectiveRequest Telling::request() const {
  CollectiveRequest telling = request_;
  telling.particulars = this;
  return telling;
}

void TellingValues::add_own(CallDetails& details) const { add_values(details, values_); }

void TellingRoot::add_own(CallDetails& details) const {
  details.push_back(fmt::format("root {}", root_));
  details.push_back(value_detail(0, std::to_string(tensor_.num_elements()), tensor_.dtype()));
}

}  // namespace crossdevice::detail
