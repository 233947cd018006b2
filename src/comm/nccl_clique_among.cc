// SPDX-License-Identifier: Apache-2.0
// Cliques over the GPUs of several workers. Before NCCL is entered, and again when all have come out of it, the workers say to each other how it stands:
// NCCL itself would wait, without an end, for one that does not come.
#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/nccl_clique_making.h"
#include "comm/detail/nccl_clique_state.h"
#include "comm/detail/nccl_loader.h"
#include "comm/detail/nccl_reaper.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

using State = NcclClique::State;

/// How much longer than NCCL may take a worker waits to hear from the others that it took too long there.
constexpr double kMarginSeconds = 10;
constexpr std::size_t kMaxTroubleBytes = std::size_t{16} << 10;

/// What a worker says: how many GPUs it brings, what the least of them can, and which NCCL, or what is wrong.
struct Word {
  std::string trouble;  // empty: nothing
  std::uint32_t are_gpus_held =
      0;  // 1: the trouble is that NCCL has not let go of its GPUs, which nobody is to use then
  std::uint32_t num_gpus = 0;
  std::uint32_t version = 0;
  std::uint32_t compute_capability = 0;

  [[nodiscard]] std::string pack() const {
    return WireWriter()
        .text(trouble.substr(0, kMaxTroubleBytes))
        .number(are_gpus_held)
        .number(num_gpus)
        .number(version)
        .number(compute_capability)
        .take();
  }
  static Word unpack(const std::string& bytes) {
    WireReader reader(bytes);
    Word word;
    word.trouble = reader.text();
    word.are_gpus_held = reader.number<std::uint32_t>();
    word.num_gpus = reader.number<std::uint32_t>();
    word.version = reader.number<std::uint32_t>();
    word.compute_capability = reader.number<std::uint32_t>();
    return word;
  }
};

/// Everybody's.
///
/// Errors   UnavailableError: somebody is in trouble; FailedPreconditionError: its GPUs are held. Either on all workers.
std::vector<Word> exchange(Cluster& cluster, const Word& mine, const Deadline& deadline) {
  std::vector<Word> words;
  std::string troubles;
  std::vector<RankInfo> culprits;
  bool are_gpus_held = false;
  for (const std::string& bytes : cluster.all_gather_bytes(mine.pack(), deadline)) {
    words.push_back(Word::unpack(bytes));
    if (words.back().trouble.empty()) continue;
    const RankInfo who = cluster.worker(static_cast<int>(words.size()) - 1);
    troubles +=
        fmt::format("{}{}: {}", troubles.empty() ? "" : "; ", to_string(who), words.back().trouble);
    culprits.push_back(who);
    are_gpus_held = are_gpus_held || words.back().are_gpus_held != 0;
  }
  if (are_gpus_held) throw FailedPreconditionError(troubles, {.culprits = std::move(culprits)});
  if (!troubles.empty()) throw UnavailableError(troubles, {.culprits = std::move(culprits)});
  return words;
}

void require_one_version(const Cluster& cluster, const std::vector<Word>& words) {
  std::string versions;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    versions += fmt::format("{}rank {}: {}", rank == 0 ? "" : ", ", rank,
                            nccl_version_text(static_cast<int>(words[rank].version)));
  }
  const bool is_one = std::all_of(words.begin(), words.end(), [&words](const Word& each) {
    return each.version == words[0].version;
  });
  if (is_one) return;
  throw UnavailableError(fmt::format("NCCL needs one version on all {} workers, and has {}",
                                     cluster.num_workers(), versions));
}

/// `patience`: how long the others wait to hear of it.
NcclUniqueId share_id(Cluster& cluster, const std::shared_ptr<State>& state,
                      const Deadline& deadline, const Deadline& patience) {
  NcclUniqueId id;
  std::string bytes;
  Word word;
  if (cluster.rank() == 0) {
    try {
      id = make_unique_id(state, deadline);
    } catch (const OpError& error) {
      word.trouble = error.what();
    }
    bytes = WireWriter().text(word.trouble).raw({id.bytes.data(), id.bytes.size()}).take();
  }
  const std::string told = cluster.broadcast_bytes(bytes, 0, patience);
  WireReader reader(told);
  const std::string trouble = reader.text();
  if (!trouble.empty()) throw UnavailableError("rank 0: " + trouble);
  const std::string_view raw = reader.raw(id.bytes.size());
  std::copy(raw.begin(), raw.end(), id.bytes.begin());
  return id;
}

/// Once: it is the same for every clique.
void warn_of_plain_links(const Cluster& cluster) {
  if (!environment().tls || cluster.num_local_workers() == cluster.num_workers()) return;
  log_once("nccl_beside_tls", LogSeverity::WARNING,
           "CROSSDEVICE_TLS is on, but what NCCL sends between machines is not encrypted; "
           "CommunicationImplementation::RING is");
}

/// `state` hears of the others' end. It must not end the listening itself, so it is the clique that holds that.
std::shared_ptr<void> listen(Cluster& cluster, const std::shared_ptr<State>& state) {
  const std::weak_ptr<State> weak = state;
  return cluster.listen(
      {.on_lost =
           [weak](const RankInfo& member, const std::string& why) {
             if (const std::shared_ptr<State> alive = weak.lock()) {
               alive->break_with(std::make_exception_ptr(UnavailableError(
                                     fmt::format("{} is gone: {}", to_string(member), why),
                                     {.culprits = {member}})),
                                 /*is_known_everywhere=*/true);
             }
           },
       .on_abort =
           [weak](const RankInfo& origin, const std::string& text) {
             if (const std::shared_ptr<State> alive = weak.lock()) {
               alive->break_with(std::make_exception_ptr(AbortedError(
                                     fmt::format("{} has given up: {}", to_string(origin), text),
                                     {.culprits = {origin}})),
                                 /*is_known_everywhere=*/true);
             }
           }});
}

}  // namespace

Deadline nccl_meeting_deadline(const Deadline& deadline) {
  const Deadline own = meeting_deadline();
  return deadline.moment() < own.moment() ? own : deadline;
}

std::shared_ptr<NcclClique> NcclClique::among(const std::shared_ptr<Cluster>& cluster,
                                              const Devices& local, const Deadline& deadline) {
  require_not_forked();
  const Deadline patience = Deadline::after(std::chrono::duration<double>(kMarginSeconds) +
                                            (deadline.moment() - Deadline::Clock::now()));
  Word mine;
  std::shared_ptr<State> state;
  try {
    state = prepare_clique(local);
    await_reapers(state->gpus, deadline);
    mine.num_gpus = static_cast<std::uint32_t>(local.size());
    mine.version = static_cast<std::uint32_t>(state->nccl->version());
    mine.compute_capability = static_cast<std::uint32_t>(state->compute_capability);
  } catch (const FailedPreconditionError& error) {
    mine.are_gpus_held = 1;  // for good
    mine.trouble = error.what();
  } catch (const std::exception& error) {
    mine.trouble = error.what();
  }
  const std::vector<Word> words = exchange(*cluster, mine, patience);
  require_one_version(*cluster, words);
  state->num_ranks = 0;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (rank == static_cast<std::size_t>(cluster->rank())) state->first_rank = state->num_ranks;
    state->num_ranks += static_cast<int>(words[rank].num_gpus);
    state->compute_capability =
        std::min(state->compute_capability, static_cast<int>(words[rank].compute_capability));
  }
  const NcclUniqueId id = share_id(*cluster, state, deadline, patience);
  std::shared_ptr<NcclClique> clique;
  try {
    make_communicators(state, id, deadline);
    clique = std::make_shared<NcclClique>(Passkey(), state);
    await_reapers_before_cuda_ends(/*has_made=*/true);
    warm_up(*clique, deadline);
  } catch (const std::exception& error) {
    mine.trouble = error.what();
  }
  try {
    (void)exchange(*cluster, mine, patience);
  } catch (...) {
    if (clique != nullptr) clique->break_with(std::current_exception());
    throw;
  }
  warn_of_plain_links(*cluster);
  state->cluster = cluster;
  clique->cluster_ = cluster;
  clique->listening_ = listen(*cluster, state);
  return clique;
}

}  // namespace crossdevice::detail
