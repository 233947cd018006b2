// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/nccl_clique.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/backoff.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/nccl_clique_making.h"
#include "comm/detail/nccl_clique_state.h"
#include "comm/detail/nccl_error.h"
#include "comm/detail/nccl_reaper.h"

namespace crossdevice::detail {
namespace {

/// The end of a process is known at once by its control connection, which a thread of its own has to read.
std::chrono::nanoseconds news_time() { return nccl_grace() / 20; }

/// What broke a clique, with what NCCL had said before, where that is not what broke it.
std::exception_ptr with_words_of_nccl(const std::exception_ptr& why, const std::string& words) {
  try {
    std::rethrow_exception(why);
  } catch (const OpError& known) {
    if (std::string_view(known.what()).find(words) != std::string_view::npos) return why;
    return said_anew(known, fmt::format("{} ({})", known.what(), words), known.operation(),
                     known.inputs_intact());
  } catch (...) {
    return why;
  }
}

std::vector<RankInfo> blamed_by(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& known) {
    return {known.culprits().begin(), known.culprits().end()};
  } catch (...) {
    return {};
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------- what is shared

void NcclClique::State::require_usable() {
  if (is_whole()) return;
  const std::lock_guard lock(mutex);
  if (!std::exchange(is_told, true)) std::rethrow_exception(first_error);
  const bool is_stuck = state.load(std::memory_order_relaxed) == NcclCliqueState::ABORT_INCOMPLETE;
  throw FailedPreconditionError(
      fmt::format(
          "NCCL's communicators of {} are broken since {}{}", devices.to_string(), broken_text,
          is_stuck ? "; NCCL has not come back from their abort, so only the process's end is safe"
                   : ""),
      {.operation = {}, .culprits = blamed_by(first_error)});
}

void NcclClique::State::break_with(std::exception_ptr why, bool is_known_everywhere) noexcept {
  if (why == nullptr) why = std::make_exception_ptr(InternalError("a failure without a reason"));
  {
    const std::lock_guard lock(mutex);
    if (!is_whole()) return;
    if (!nccl_text.empty()) why = with_words_of_nccl(why, nccl_text);
    broken_text = exception_text(why);
    first_error = std::move(why);
    begin_reaping(*this);  // before anybody can see that it is broken, and make another
    state.store(NcclCliqueState::BROKEN, std::memory_order_release);
  }
  changed.notify_all();
  // First: they wait for this worker, which may end when it hears of the failure.
  if (!is_known_everywhere) tell_peers();
  reap(shared_from_this());
}

void NcclClique::State::tell_peers() noexcept {
  try {
    if (const std::shared_ptr<Cluster> alive = cluster.lock()) {
      alive->abort_collective_ops(broken_text);
    }
  } catch (const std::exception& error) {
    log(LogSeverity::WARNING,
        fmt::format("the other workers could not be told that NCCL's communicators are broken: {}",
                    error.what()));
  }
}

void NcclClique::State::take_back() {
  {
    const std::lock_guard lock(mutex);
    if (!is_whole()) return;
    broken_text = "their owner took them back";
    first_error = std::make_exception_ptr(FailedPreconditionError(fmt::format(
        "NCCL's communicators of {} are not there: {}", devices.to_string(), broken_text)));
    state.store(NcclCliqueState::ABORTED, std::memory_order_release);
  }
  give_up_communicators(Deadline::after(nccl_grace()));
}

void NcclClique::State::set_state(NcclCliqueState next) {
  {
    const std::lock_guard lock(mutex);
    state.store(next, std::memory_order_release);
  }
  changed.notify_all();
}

void NcclClique::State::give_up_communicators(const Deadline& deadline) {
  std::unique_lock lock(mutex);
  (void)changed.wait_until(lock, deadline.moment(), [this] { return num_launches == 0; });
  are_given_up = true;
}

bool NcclClique::State::awaits_news(NcclStatus status, const std::exception& error) {
  const bool is_of_others =
      status == NcclStatus::REMOTE_ERROR || status == NcclStatus::SYSTEM_ERROR;
  if (!is_of_others || num_ranks == static_cast<int>(gpus.size())) return false;
  if (nccl_text.empty()) {
    nccl_text = error.what();
    news_deadline = Deadline::after(news_time());
  }
  return !news_deadline.has_passed();
}

void NcclClique::State::await_news(NcclStatus status, const std::exception& error) {
  std::unique_lock lock(mutex);
  if (!awaits_news(status, error)) return;
  (void)changed.wait_until(lock, news_deadline.moment(), [this] { return !is_whole(); });
}

std::exception_ptr NcclClique::State::find_async_error(NcclNews news) {
  const std::lock_guard lock(mutex);
  if (are_given_up) return nullptr;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    NcclStatus error = NcclStatus::SUCCESS;
    NcclStatus status = nccl->comm_get_async_error(communicators[i], &error);
    if (status == NcclStatus::SUCCESS) status = error;
    if (status == NcclStatus::SUCCESS || status == NcclStatus::IN_PROGRESS) continue;
    try {
      require_nccl(*nccl, communicators[i], status,
                   fmt::format("NCCL on {}", devices[i].short_name()));
    } catch (const std::exception& said) {
      if (awaits_news(status, said) && news == NcclNews::MAY_COME) return nullptr;
      return std::current_exception();
    }
  }
  return nullptr;
}

void NcclClique::State::await_progress(const Deadline& deadline) const {
  Backoff backoff;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    for (;;) {
      NcclStatus error = NcclStatus::SUCCESS;
      require_nccl(*nccl, communicators[i], nccl->comm_get_async_error(communicators[i], &error),
                   "ncclCommGetAsyncError");
      if (error != NcclStatus::IN_PROGRESS) {
        require_nccl(*nccl, communicators[i], error, "a call that NCCL had in progress");
        break;
      }
      if (!is_whole()) return;  // who called asks for the reason
      if (deadline.has_passed()) {
        throw DeadlineExceededError(
            fmt::format("NCCL did not come to the end of a call on {}", devices[i].short_name()));
      }
      backoff.pause(deadline);
    }
  }
}

// ---------------------------------------------------------------------------------------------- the kept ones

namespace {

/// Never destroyed: who holds a clique may do so after main.
struct Kept {
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool is_making = false;  // one at a time: NCCL allocates on every GPU meanwhile
  std::unordered_map<Devices, std::shared_ptr<NcclClique>> cliques;
};

Kept& kept() {
  static Kept& instance = *new Kept;
  return instance;
}

std::shared_ptr<NcclClique> find_whole(const Devices& devices) {
  const std::lock_guard lock(kept().mutex);
  const auto found = kept().cliques.find(devices);
  if (found == kept().cliques.end()) return nullptr;
  return found->second->state() == NcclCliqueState::WHOLE ? found->second : nullptr;
}

/// What nobody else holds ends here, while CUDA is still there; what is held ends with its holder, and adopted ones are their owner's to end.
void let_go_of_all() {
  std::vector<std::shared_ptr<NcclClique>> all;  // die without the lock
  const std::lock_guard lock(kept().mutex);
  std::erase_if(kept().cliques, [&all](auto& each) {
    if (each.second->is_adopted()) return false;
    all.push_back(std::move(each.second));
    return true;
  });
}

void keep(const Devices& devices, std::shared_ptr<NcclClique> clique) {
  // Behind what waits for reapers, so that it comes before that.
  static const bool is_known = (stop_at_shutdown(&let_go_of_all), true);
  (void)is_known;
  {
    const std::lock_guard lock(kept().mutex);
    kept().cliques[devices].swap(clique);
  }
  // The one before, which is broken, dies here, without the lock.
}

/// The right to make one.
class MakersTurn {
 public:
  MakersTurn(const Devices& devices, const Deadline& deadline) {
    Kept& all = kept();
    std::unique_lock lock(all.mutex);
    if (!all.changed.wait_until(lock, deadline.moment(), [&all] { return !all.is_making; })) {
      throw DeadlineExceededError(
          fmt::format("NCCL's communicators of {} must wait for others that are being made",
                      devices.to_string()));
    }
    all.is_making = true;
  }
  ~MakersTurn() {
    {
      const std::lock_guard lock(kept().mutex);
      kept().is_making = false;
    }
    kept().changed.notify_all();
  }
  MakersTurn(const MakersTurn&) = delete;
  MakersTurn& operator=(const MakersTurn&) = delete;
};

}  // namespace

std::shared_ptr<NcclClique> NcclClique::of(const Devices& devices,
                                           std::optional<double> timeout_seconds) {
  require_not_forked();
  if (std::shared_ptr<NcclClique> found = find_whole(devices)) return found;
  const Deadline deadline = nccl_making_deadline(timeout_seconds);
  const MakersTurn turn(devices, deadline);
  if (std::shared_ptr<NcclClique> found = find_whole(devices)) return found;
  std::shared_ptr<NcclClique> made = make(devices, deadline);
  keep(devices, made);
  return made;
}

std::shared_ptr<NcclClique> NcclClique::make(const Devices& devices, const Deadline& deadline) {
  const std::shared_ptr<State> state = prepare_clique(devices);
  await_reapers(state->gpus, deadline);
  make_communicators(state, make_unique_id(state, deadline), deadline);
  auto clique = std::make_shared<NcclClique>(Passkey(), state);
  await_reapers_before_cuda_ends(/*has_made=*/true);
  warm_up(*clique, deadline);
  return clique;
}

namespace {

/// What `ask` says of a communicator; -1: it is not made yet, of one whose owner does not wait for NCCL.
template <class Ask>
int number_of(NcclApi& nccl, NcclComm communicator, std::string_view name, Ask ask) {
  int number = -1;
  require_nccl(nccl, communicator, ask(&number), name);
  return number;
}

/// All would hang, or corrupt memory, where a communicator has ranks that do not come, or works on another GPU than its buffers lie on.
void require_to_fit(const NcclClique::State& state, std::span<const NcclComm> communicators) {
  NcclApi& nccl = *state.nccl;
  const auto num_devices = static_cast<int>(state.devices.size());
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    const NcclComm each = communicators[i];
    if (each == nullptr) throw ValueError("a null communicator cannot be adopted");
    const int count = number_of(nccl, each, "ncclCommCount",
                                [&](int* number) { return nccl.comm_count(each, number); });
    if (count != num_devices) {
      throw ValueError(fmt::format(
          "the communicator for {} is one of {} ranks, expected {}, one for each of {}",
          state.devices[i].short_name(), count, num_devices, state.devices.to_string()));
    }
    const int device = number_of(nccl, each, "ncclCommCuDevice",
                                 [&](int* number) { return nccl.comm_cu_device(each, number); });
    if (device != state.gpus[i]->ordinal()) {
      throw ValueError(fmt::format("the communicator for {} is of CUDA device {}, expected {}",
                                   state.devices[i].short_name(), device,
                                   state.gpus[i]->ordinal()));
    }
  }
}

/// Which rank each has.
std::vector<int> ranks_of_adopted(NcclApi& nccl, std::span<const NcclComm> communicators) {
  std::vector<int> ranks;
  ranks.reserve(communicators.size());
  for (const NcclComm each : communicators) {
    const int rank = number_of(nccl, each, "ncclCommUserRank",
                               [&](int* number) { return nccl.comm_user_rank(each, number); });
    const bool is_new = std::ranges::find(ranks, rank) == ranks.end();
    if (rank < 0 || static_cast<std::size_t>(rank) >= communicators.size() || !is_new) {
      throw ValueError(fmt::format(
          "of {} communicators that are adopted {} has rank {} of its clique, expected "
          "all ranks of one, 0 to {}",
          communicators.size(), is_new ? "one" : "another one", rank, communicators.size() - 1));
    }
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::shared_ptr<NcclClique> NcclClique::adopt(const Devices& devices,
                                              std::vector<NcclComm> communicators) {
  require_not_forked();
  const std::shared_ptr<State> state = prepare_clique(devices);
  if (communicators.size() != devices.size()) {
    throw ValueError(fmt::format("{} communicators for the {} devices {}", communicators.size(),
                                 devices.size(), devices.to_string()));
  }
  require_to_fit(*state, communicators);
  state->adopted_ranks = ranks_of_adopted(*state->nccl, communicators);
  state->communicators = std::move(communicators);
  state->is_adopted = true;
  const MakersTurn turn(devices, nccl_making_deadline(std::nullopt));
  if (find_whole(devices) != nullptr) {
    throw FailedPreconditionError(
        fmt::format("{} have NCCL communicators already: adopt yours before their first use",
                    devices.to_string()));
  }
  auto clique = std::make_shared<NcclClique>(Passkey(), state);
  await_reapers_before_cuda_ends(/*has_made=*/true);
  keep(devices, clique);
  return clique;
}

void NcclClique::end_adoption(const Devices& devices) {
  require_not_forked();
  std::shared_ptr<NcclClique> clique;
  {
    const std::lock_guard lock(kept().mutex);
    const auto found = kept().cliques.find(devices);
    if (found != kept().cliques.end() && found->second->state_->is_adopted) {
      clique = std::move(found->second);
      kept().cliques.erase(found);
    }
  }
  if (clique == nullptr) {
    throw ValueError("no NCCL communicators of " + devices.to_string() + " were adopted");
  }
  // Where they are broken, threads of ours are inside NCCL to revoke them: not for longer than the grace, as far as their owner is to wait.
  const bool has_ended = clique->await_end_of_abort(Deadline::after(2 * nccl_grace()));
  if (!has_ended || clique->state() == NcclCliqueState::ABORT_INCOMPLETE) {
    throw FailedPreconditionError(fmt::format(
        "NCCL has not come back from revoking the adopted communicators of {}: they must be "
        "neither aborted nor destroyed, and only the process's end is safe",
        devices.to_string()));
  }
  clique->state_->take_back();
}

// ---------------------------------------------------------------------------------------------- one clique

NcclClique::NcclClique(Passkey, std::shared_ptr<State> state) : state_(std::move(state)) {}

NcclClique::~NcclClique() {
  if (is_forked_child()) return;
  listening_.reset();
  // The last operation has outlived whoever made it: the watchdog has others' to look after than this job's goodbye.
  if (is_watchdog_thread() && cluster_ != nullptr) leave_job_beside(std::move(cluster_));
  // A broken one is the reaper's. While the process ends CUDA must be left alone.
  if (state_->is_adopted || !state_->is_whole() || are_gpus_closed()) return;
  end_clique(state_, /*waits=*/!is_watchdog_thread());
}

NcclApi& NcclClique::api() const { return *state_->nccl; }
const Devices& NcclClique::devices() const { return state_->devices; }
int NcclClique::size() const { return static_cast<int>(state_->gpus.size()); }
int NcclClique::num_ranks() const { return state_->num_ranks; }
int NcclClique::rank(int i) const {
  return state_->adopted_ranks.empty() ? state_->first_rank + i
                                       : state_->adopted_ranks[static_cast<std::size_t>(i)];
}
int NcclClique::compute_capability() const { return state_->compute_capability; }
bool NcclClique::is_adopted() const { return state_->is_adopted; }
GpuDevice& NcclClique::device(int i) const { return *state_->gpus[static_cast<std::size_t>(i)]; }
NcclComm NcclClique::communicator(int i) const {
  return state_->communicators[static_cast<std::size_t>(i)];
}
void NcclClique::require_usable() const { state_->require_usable(); }
void NcclClique::break_with(std::exception_ptr why, bool is_known_everywhere) {
  state_->break_with(std::move(why), is_known_everywhere);
}
NcclCliqueState NcclClique::state() const { return state_->state.load(std::memory_order_acquire); }

std::exception_ptr NcclClique::first_error() const {
  if (state_->is_whole()) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return state_->first_error;
}

bool NcclClique::await_end_of_abort(const Deadline& deadline) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.moment(),
                                    [this] { return state() != NcclCliqueState::BROKEN; });
}

std::exception_ptr NcclClique::find_async_error(NcclNews news) const {
  return state_->find_async_error(news);
}

void NcclClique::set_witness(std::shared_ptr<StallWitness> witness) {
  const std::lock_guard lock(state_->mutex);
  state_->witness.swap(witness);
}

std::shared_ptr<StallWitness> NcclClique::witness() const {
  const std::lock_guard lock(state_->mutex);
  return state_->witness;
}

}  // namespace crossdevice::detail
