// SPDX-License-Identifier: Apache-2.0
// Cliques over the GPUs of several workers. Before NCCL is entered, and again when all have come out of it, the workers say to each other how it stands:
// NCCL itself would wait, without an end, for one that does not come.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
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

/// How much longer than NCCL may take a worker waits to hear from the others that it took too long there. All come out of it at one time, but for a launch that
/// has to be aborted, which the reaper does after a quarter of its grace.
std::chrono::nanoseconds margin() { return nccl_grace() / 2; }
constexpr std::size_t kMaxTroubleBytes = std::size_t{16} << 10;

/// Of what kind a worker's trouble is. The greatest among them is everybody's.
enum class Trouble : std::uint32_t {
  NONE,
  LATE,     ///< NCCL has not come to an end in time, and may hold GPUs
  REFUSAL,  ///< NCCL cannot, and says why. Who was late may have waited for that
  HELD,     ///< NCCL has not let go of GPUs, which nobody is to use then
};

/// What a worker says: how many GPUs it brings, what the least of them can, and which NCCL, or what is wrong.
struct Word {
  Trouble trouble = Trouble::NONE;
  std::string why;
  std::uint32_t num_gpus = 0;
  std::uint32_t version = 0;
  std::uint32_t compute_capability = 0;

  [[nodiscard]] std::string pack() const {
    return WireWriter()
        .number(static_cast<std::uint32_t>(trouble))
        .text(why.substr(0, kMaxTroubleBytes))
        .number(num_gpus)
        .number(version)
        .number(compute_capability)
        .take();
  }
  static Word unpack(const std::string& bytes) {
    WireReader reader(bytes);
    Word word;
    word.trouble = static_cast<Trouble>(reader.number<std::uint32_t>());
    word.why = reader.text();
    word.num_gpus = reader.number<std::uint32_t>();
    word.version = reader.number<std::uint32_t>();
    word.compute_capability = reader.number<std::uint32_t>();
    return word;
  }
  /// The error that is being handled. `deadline`: what fails behind it fails because somebody was late.
  void take_trouble(const Deadline& deadline) {
    try {
      throw;
    } catch (const FailedPreconditionError& error) {
      set(Trouble::HELD, error);  // for good
    } catch (const DeadlineExceededError& error) {
      set(Trouble::LATE, error);
    } catch (const std::exception& error) {
      set(deadline.has_passed() ? Trouble::LATE : Trouble::REFUSAL, error);
    }
  }

 private:
  void set(Trouble kind, const std::exception& error) {
    trouble = kind;
    why = error.what();
  }
};

[[noreturn]] void throw_trouble(Trouble trouble, const std::string& text,
                                std::vector<RankInfo> culprits) {
  OpErrorDetails details{.culprits = std::move(culprits)};
  switch (trouble) {
    case Trouble::LATE:
      throw DeadlineExceededError(
          "NCCL's communicators were not made in time on all workers: " + text, std::move(details));
    case Trouble::HELD:
      throw FailedPreconditionError(text, std::move(details));
    case Trouble::REFUSAL:
    case Trouble::NONE:
      break;
  }
  throw UnavailableError(text, std::move(details));
}

/// Everybody's.
///
/// Errors   on all workers the same, which names all that are in such trouble: FailedPreconditionError: somebody's GPUs are held; UnavailableError: somebody's NCCL
///          cannot; DeadlineExceededError: somebody was late. Those of the cluster: somebody has not even come to say so.
std::vector<Word> exchange(Cluster& cluster, const Word& mine, const Deadline& deadline) {
  std::vector<Word> words;
  for (const std::string& bytes : cluster.all_gather_bytes(mine.pack(), deadline)) {
    words.push_back(Word::unpack(bytes));
  }
  const Trouble worst = std::ranges::max_element(words, {}, &Word::trouble)->trouble;
  if (worst == Trouble::NONE) return words;
  std::string text;
  std::vector<RankInfo> culprits;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const Word& word = words[rank];
    if (word.trouble == Trouble::NONE) continue;
    const RankInfo who = cluster.worker(static_cast<int>(rank));
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", to_string(who), word.why);
    if (word.trouble == worst) culprits.push_back(who);
  }
  throw_trouble(worst, text, std::move(culprits));
}

/// The deadline of the worker whose time is over first, equal on all, so that nobody waits in NCCL for one that has given up.
Deadline first_deadline_of_all(Cluster& cluster, const Deadline& mine, const Deadline& patience) {
  using Milliseconds = std::chrono::duration<std::int64_t, std::milli>;
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t left = kNever;
  if (!mine.is_never()) {
    left = std::chrono::duration_cast<Milliseconds>(mine.moment() - Deadline::Clock::now()).count();
  }
  for (const std::string& bytes :
       cluster.all_gather_bytes(WireWriter().number(left).take(), patience)) {
    left = std::min(left, WireReader(bytes).number<std::int64_t>());
  }
  return left == kNever ? Deadline::never() : Deadline::after(Milliseconds(left));
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
  if (cluster.rank() == 0) {
    Word word;
    try {
      id = make_unique_id(state, deadline);
    } catch (const OpError&) {
      word.take_trouble(deadline);
    }
    bytes = WireWriter().raw({id.bytes.data(), id.bytes.size()}).text(word.pack()).take();
  }
  const std::string told = cluster.broadcast_bytes(bytes, 0, patience);
  WireReader reader(told);
  const std::string_view raw = reader.raw(id.bytes.size());
  std::copy(raw.begin(), raw.end(), id.bytes.begin());
  const Word word = Word::unpack(reader.text());
  if (word.trouble == Trouble::NONE) return id;
  const RankInfo chief = cluster.worker(0);
  throw_trouble(word.trouble, fmt::format("{}: {}", to_string(chief), word.why), {chief});
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
  const Deadline patience = deadline.later(margin());
  Word mine;
  std::shared_ptr<State> state;
  try {
    state = prepare_clique(local);
    await_reapers(state->gpus, deadline);
    mine.num_gpus = static_cast<std::uint32_t>(local.size());
    mine.version = static_cast<std::uint32_t>(state->nccl->version());
    mine.compute_capability = static_cast<std::uint32_t>(state->compute_capability);
  } catch (const std::exception&) {
    mine.take_trouble(Deadline::never());
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
  const Deadline making = first_deadline_of_all(*cluster, deadline, patience);
  const Deadline told_by = making.later(margin());
  const NcclUniqueId id = share_id(*cluster, state, making, told_by);
  std::shared_ptr<NcclClique> clique;
  try {
    make_communicators(state, id, making);
    clique = std::make_shared<NcclClique>(Passkey(), state);
    await_reapers_before_cuda_ends(/*has_made=*/true);
    warm_up(*clique, making);
  } catch (const std::exception&) {
    mine.take_trouble(making);
  }
  try {
    (void)exchange(*cluster, mine, told_by);
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
