// SPDX-License-Identifier: Apache-2.0
#include "collective/detail/inquest.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace crossdevice::detail {
namespace {

/// What a member says. It travels as it lies in memory, the culprits' ranks and the text behind it.
struct Head {
  GroupOperation operation;
  std::uint32_t code = 0;
  std::uint32_t num_culprits = 0;
  std::int64_t waited_ns = 0;  // in the operation
};
struct Statement {
  GroupOperation operation;
  std::chrono::nanoseconds waited{};
  StatusCode code = StatusCode::INTERNAL;
  std::vector<RankInfo> culprits;
  std::string text;
};

std::string encode(const GroupOperation& operation, const OpError& failure,
                   std::chrono::nanoseconds waited) {
  Head head{.operation = operation,
            .code = static_cast<std::uint32_t>(failure.code()),
            .num_culprits = 0,
            .waited_ns = waited.count()};
  std::string ranks;
  for (const RankInfo& culprit : failure.culprits()) {
    if (culprit.rank < 0) continue;  // no worker of this job, so none that the others could name
    char rank[sizeof culprit.rank];
    std::memcpy(rank, &culprit.rank, sizeof rank);
    ranks.append(rank, sizeof rank);
    ++head.num_culprits;
  }
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes.append(ranks).append(failure.what());
}

std::optional<Statement> decode(std::string_view bytes, const Cluster& cluster) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  if (head.code > static_cast<std::uint32_t>(StatusCode::INTERNAL)) return std::nullopt;
  if (bytes.size() / sizeof(int) < head.num_culprits) return std::nullopt;
  Statement statement{.operation = head.operation,
                      .waited = std::chrono::nanoseconds(head.waited_ns),
                      .code = static_cast<StatusCode>(head.code),
                      .culprits = {},
                      .text = {}};
  for (std::uint32_t i = 0; i < head.num_culprits; ++i) {
    int rank = 0;
    std::memcpy(&rank, bytes.data(), sizeof rank);
    bytes.remove_prefix(sizeof rank);
    if (rank < 0 || rank >= cluster.num_workers()) return std::nullopt;
    statement.culprits.push_back(cluster.worker(rank));
  }
  statement.text = bytes;
  return statement;
}

/// How much a failure explains: the last ones follow from the others.
int weight(StatusCode code) {
  switch (code) {
    case StatusCode::INTERNAL:
      return 4;
    case StatusCode::ABORTED:
      return 3;
    case StatusCode::UNAVAILABLE:
      return 2;
    case StatusCode::DEADLINE_EXCEEDED:
      return 1;
    case StatusCode::CANCELLED:
    case StatusCode::FAILED_PRECONDITION:
    case StatusCode::UNIMPLEMENTED:
    case StatusCode::RESOURCE_EXHAUSTED:
      break;
  }
  return 5;  // happened to that worker, not between workers
}

std::vector<int> everybody(const Cluster& cluster) {
  std::vector<int> ranks(static_cast<std::size_t>(cluster.num_workers()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

[[noreturn]] void raise(StatusCode code, const std::string& text, std::vector<RankInfo> culprits,
                        bool inputs_intact) {
  throw_op_error(
      code, text,
      {.operation = {}, .culprits = std::move(culprits), .inputs_intact = inputs_intact});
}

/// `ranks` are who was waited for; this worker hears it too if it is one of them.
[[noreturn]] void blame(const std::string& name, const std::vector<RankInfo>& ranks,
                        const Cluster& cluster, bool inputs_intact) {
  std::string names;
  for (const RankInfo& rank : ranks) {
    if (rank.rank == cluster.rank()) {
      raise(StatusCode::DEADLINE_EXCEEDED,
            fmt::format("{}: the others have given up waiting for this worker, {}", name,
                        to_string(rank)),
            {rank}, inputs_intact);
    }
    names += (names.empty() ? "" : ", ") + to_string(rank);
  }
  raise(StatusCode::DEADLINE_EXCEEDED, fmt::format("{} timed out: waiting for {}", name, names),
        ranks, inputs_intact);
}

/// A difference that does not come from the others' having waited.
constexpr std::chrono::milliseconds kJitter{20};

/// Who came so late to an operation that all are in now that the others have waited for them.
std::vector<RankInfo> late_ones(const std::vector<Statement>& statements, const Cluster& cluster) {
  std::chrono::nanoseconds longest{};
  for (const Statement& each : statements) longest = std::max(longest, each.waited);
  std::vector<RankInfo> late;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    if (statements[rank].waited >= std::min(longest / 2, longest - kJitter)) continue;
    late.push_back(cluster.worker(static_cast<int>(rank)));
  }
  return late;
}

[[noreturn]] void conclude(const std::string& name, const std::vector<Statement>& statements,
                           const Cluster& cluster, bool inputs_intact) {
  bool are_equal = true;
  for (const Statement& each : statements) {
    are_equal &= each.operation == statements[0].operation;
  }
  if (!are_equal) {
    std::string text = "workers make different calls:";
    std::vector<RankInfo> culprits;
    for (std::size_t rank = 0; rank < statements.size(); ++rank) {
      text += fmt::format("{} rank {} {}", rank == 0 ? "" : ";", rank,
                          to_string(statements[rank].operation));
      if (statements[rank].operation == statements[0].operation) continue;
      culprits.push_back(cluster.worker(static_cast<int>(rank)));
    }
    raise(StatusCode::INTERNAL, text, std::move(culprits), inputs_intact);
  }
  const Statement* telling = statements.data();
  for (const Statement& each : statements) {
    if (weight(each.code) > weight(telling->code)) telling = &each;
  }
  if (telling->code == StatusCode::DEADLINE_EXCEEDED) {
    const std::vector<RankInfo> late = late_ones(statements, cluster);
    if (!late.empty()) blame(name, late, cluster, inputs_intact);
  }
  const std::string prefix = telling->text.starts_with(name) ? "" : name + ": ";
  raise(telling->code, prefix + telling->text, telling->culprits, inputs_intact);
}

}  // namespace

Inquest::Inquest(const std::shared_ptr<Cluster>& cluster)
    : meeting_(cluster->subgroup(everybody(*cluster))) {}

void Inquest::hold(const std::string& name, const GroupOperation& operation, const OpError& failure,
                   bool inputs_intact) {
  std::vector<std::string> parts;
  try {
    const auto waited = std::chrono::steady_clock::now() - begun_at_;
    parts = meeting_->all_gather_bytes(encode(operation, failure, waited),
                                       std::chrono::duration<double>(kGrace).count());
  } catch (const DeadlineExceededError& absent) {
    if (failure.code() != StatusCode::DEADLINE_EXCEEDED)
      throw_op_error(failure.code(), failure.what(),
                     {.operation = {},
                      .culprits = {failure.culprits().begin(), failure.culprits().end()},
                      .inputs_intact = inputs_intact});
    blame(name, {absent.culprits().begin(), absent.culprits().end()}, *meeting_, inputs_intact);
  } catch (const OpError& better) {
    // The control plane knows who is gone and who has aborted; a difference between calls explains more than its consequences.
    const OpError& cause = weight(failure.code()) >= weight(better.code()) ? failure : better;
    raise(cause.code(), fmt::format("{}: {}", name, cause.what()),
          {cause.culprits().begin(), cause.culprits().end()}, inputs_intact);
  }
  std::vector<Statement> statements;
  statements.reserve(parts.size());
  for (const std::string& part : parts) {
    std::optional<Statement> statement = decode(part, *meeting_);
    if (!statement.has_value())
      raise(StatusCode::INTERNAL, name + ": a worker's statement cannot be read", {},
            inputs_intact);
    statements.push_back(*std::move(statement));
  }
  conclude(name, statements, *meeting_, inputs_intact);
}

}  // namespace crossdevice::detail
