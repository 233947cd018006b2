// SPDX-License-Identifier: Apache-2.0
// What calls say of themselves, and where two of them differ.
#include "strategy/detail/replica_call.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

const char* to_string(CallKind kind) {
  switch (kind) {
    case CallKind::ALL_REDUCE:
      return "all_reduce";
    case CallKind::ALL_REDUCE_INTO:
      return "all_reduce_into";
    case CallKind::ALL_GATHER:
      return "all_gather";
    case CallKind::MERGE_CALL:
      return "merge_call";
    case CallKind::UPDATE:
      return "update";
    case CallKind::ASSIGN:
      return "assign";
    case CallKind::ASSIGN_ADD:
      return "assign_add";
    case CallKind::ASSIGN_SUB:
      return "assign_sub";
  }
  return "";  // unreachable: every enumerator returns above
}

namespace {

std::string to_string(const CommunicationOptions& options) {
  std::ostringstream text;
  text << "bytes_per_pack " << options.bytes_per_pack.value() << ", timeout_seconds ";
  if (options.timeout_seconds) {
    text << *options.timeout_seconds;
  } else {
    text << "unset";
  }
  text << ", implementation " << crossdevice::to_string(options.implementation)
       << ", deterministic " << (options.deterministic ? "true" : "false")
       << (options.grouping_independent ? ", grouping_independent" : "");
  return text.str();
}

std::string to_string(const ReplicaLeaf& leaf) {
  std::ostringstream text;
  if (leaf.slices != nullptr) {
    text << "sparse " << crossdevice::to_string(leaf.slices->dtype());
  } else {
    text << crossdevice::to_string(leaf.tensor->dtype()) << ' ' << leaf.tensor->shape();
  }
  return text.str();
}

/// all_gather may differ along its axis, and sparse values in their number of rows: the ops look at those.
bool is_same_leaf(const ReplicaLeaf& a, const ReplicaLeaf& b, CallKind kind) {
  if ((a.slices != nullptr) != (b.slices != nullptr)) return false;
  if (a.slices != nullptr) return a.slices->dtype() == b.slices->dtype();
  if (a.tensor->dtype() != b.tensor->dtype()) return false;
  return kind == CallKind::ALL_GATHER || a.tensor->shape() == b.tensor->shape();
}

bool has_same_head(const CallDescription& a, const CallDescription& b) {
  return a.kind == b.kind && a.op == b.op && a.axis == b.axis &&
         a.leaves.size() == b.leaves.size() && a.variable == b.variable;
}

/// Whose call it is, as messages say it.
std::string side(const ReplicaCall& call, std::size_t replica) {
  return "replica " + std::to_string(replica) + " called " + call.to_string();
}

[[noreturn]] void throw_different(const std::string& first, const std::string& second) {
  throw ValueError("the replicas made different calls: " + first + ", " + second);
}

void require_same_call(const ReplicaCall& first, std::size_t first_id, const ReplicaCall& other,
                       std::size_t other_id) {
  const CallDescription& a = first.description();
  const CallDescription& b = other.description();
  if (!has_same_head(a, b)) throw_different(side(first, first_id), side(other, other_id));
  for (std::size_t i = 0; i < a.leaves.size(); ++i) {
    if (!is_same_leaf(a.leaves[i], b.leaves[i], a.kind)) {
      const std::string value = " with value " + std::to_string(i) + " ";
      throw_different(side(first, first_id) + value + to_string(a.leaves[i]),
                      side(other, other_id) + value + to_string(b.leaves[i]));
    }
  }
  if (a.type != nullptr && b.type != nullptr && *a.type != *b.type) {
    const std::string what = " of another function or with arguments of other types";
    throw_different(side(first, first_id), side(other, other_id) + what);
  }
  if (a.options != nullptr && b.options != nullptr && !(*a.options == *b.options)) {
    throw_different(side(first, first_id) + " with " + to_string(*a.options),
                    side(other, other_id) + " with " + to_string(*b.options));
  }
}

}  // namespace

std::string ReplicaCall::to_string() const {
  std::ostringstream text;
  text << detail::to_string(description_.kind) << " #" << sequence_;
  const std::size_t count = description_.leaves.size();
  const char* values = count == 1 ? " value)" : " values)";
  switch (description_.kind) {
    case CallKind::ALL_REDUCE:
    case CallKind::ALL_REDUCE_INTO:
      text << " (" << crossdevice::to_string(description_.op) << ", " << count << values;
      break;
    case CallKind::ALL_GATHER:
      text << " (axis " << description_.axis << ", " << count << values;
      break;
    case CallKind::MERGE_CALL:
      break;
    case CallKind::UPDATE:
    case CallKind::ASSIGN:
    case CallKind::ASSIGN_ADD:
    case CallKind::ASSIGN_SUB:
      text << " (variable '" << description_.variable_name << "')";
      break;
  }
  return text.str();
}

void require_same_calls(std::span<ReplicaCall* const> calls, std::size_t first_replica_id) {
  for (std::size_t r = 1; r < calls.size(); ++r) {
    require_same_call(*calls[0], first_replica_id, *calls[r], first_replica_id + r);
  }
}

CommunicationOptions remaining_options(std::span<ReplicaCall* const> calls) {
  Deadline earliest = Deadline::never();
  for (const ReplicaCall* call : calls) earliest = Deadline::earlier(earliest, call->deadline());
  return limited(*calls[0]->description().options, earliest);
}

CommunicationOptions limited(CommunicationOptions options, const Deadline& deadline) {
  if (!deadline.is_never()) {
    const std::chrono::duration<double> left = deadline.moment() - Deadline::Clock::now();
    options.timeout_seconds = std::max(left.count(), 1e-6);  // 0 would mean no deadline
  }
  return options;
}

}  // namespace crossdevice::detail
