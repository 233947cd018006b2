// SPDX-License-Identifier: Apache-2.0
/// The transport over UCX's active messages, in frames of one packet each.
///
/// Memory. A caller's memory is never given to UCX: a send's bytes are copied into one of the peer's slots, a receive's out of the packet that has come, after its
/// head has been compared. So there is nothing to take back when a wait ends early: whatever UCX and the network still do, they do to slots, which live until
/// the worker is gone. With zero copy a peer's adapter could still read or write a buffer whose owner has long been told that the call failed.
///
/// Flow. kUcxWindow frames of messages may be on their way from one member to another, or have come and wait for a receive; a slot and a place among the kept frames
/// belong to each. Heads say how many have been taken in; a frame of its own does where nothing goes back. HELLO, TAKEN, GOODBYE and STOPPED do not count.
///
/// Ends. As over TCP (see tcp_transport.cc), with UCX's error handler in the place of the end of a connection.
#if defined(CROSSDEVICE_WITH_UCX)

#include "comm/detail/ucx_kind.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/detail/control_message.h"
#include "comm/detail/event_descriptor.h"
#include "comm/detail/transport_kind.h"
#include "comm/ucx/ucx_end.h"
#include "comm/ucx/ucx_frame.h"
#include "comm/ucx/ucx_link.h"

namespace crossdevice::detail {
namespace {

constexpr unsigned kFrameId = 7;
/// So many taken in, and a frame says so.
constexpr std::uint64_t kEnoughTaken = kUcxWindow / 2;
/// How long the control plane, or another member, has to say why a peer is gone.
constexpr std::chrono::milliseconds kGrace{300};
/// How long last words may take to leave.
constexpr std::chrono::milliseconds kLinger{200};
/// What UCX holds back for want of room goes out only when it is asked: it wakes nobody.
constexpr std::chrono::milliseconds kPushPause{1};
constexpr int kMaxProgress = 64;

}  // namespace

class UcxKind final : public TransportKind {
 public:
  UcxKind(std::shared_ptr<Cluster> cluster, const std::vector<RankInfo>& members, bool spins,
          UcxEndPtr end, std::vector<std::string> addresses)
      : TransportKind(cluster->rank(), members, spins, cluster->stall_warning()),
        cluster_(std::move(cluster)),
        links_(members.size()),
        addresses_(std::move(addresses)),
        end_(std::move(end)),
        ucp_(end_->library()),
        have_left_(members.size()) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      links_[i].kind = this;
      links_[i].rank = static_cast<int>(i);
    }
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kFrameId;
    handler.cb = [](void* kind, const void* /*header*/, std::size_t /*header_size*/, void* data,
                    std::size_t size, const ucp_am_recv_param_t* param) {
      if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        static_cast<UcxKind*>(kind)->take_in({static_cast<const std::byte*>(data), size});
      }
      return UCS_OK;
    };
    handler.arg = this;
    if (const ucs_status_t status = ucp_.worker_set_am_recv_handler(end_->worker(), &handler);
        status != UCS_OK) {
      throw UnavailableError(
          fmt::format("UCX takes no active messages: {}", ucp_.status_string(status)));
    }
    listen();
  }
  void close() override;

 protected:
  void open(std::span<const int> peers, const Deadline& deadline) override;
  void start_send(Peer& peer, Transfer& transfer) override;
  void start_receive(Peer& peer, Transfer& transfer) override;
  bool progress() override;
  void prepare_sleep() override;
  void sleep(Clock::time_point until) override;
  void wake() noexcept override { event_.set(); }
  void tell(const TransportFailure& failure) noexcept override;
  void let_go() noexcept override {}  // nobody else has ever had their memory
  void linger() noexcept override;

 private:
  using Link = UcxLink;
  using Slot = UcxSlot;

  [[nodiscard]] Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  void listen();
  void make_endpoint(Link& to);
  bool run_worker();
  bool push(int to);
  bool post(Slot& slot, std::size_t size);
  bool post_small(Link& to, UcxFrameKind kind);
  void take_in(std::span<const std::byte> frame) noexcept;
  bool deliver(Link& from, const UcxHead& head, std::span<const std::byte> payload);
  void keep(Link& from, std::span<const std::byte> frame);
  bool drain(Link& from);
  void say_taken();
  void hear(Link& from, std::span<const std::byte> stop);
  void note_end(Link& of);
  void note_departure(Link& of);
  void fail_by_nonsense(int from, const char* what);
  void flush(bool with_endpoints) noexcept;
  [[nodiscard]] UcxHead head_to(Link& to, UcxFrameKind kind);

  std::shared_ptr<Cluster> cluster_;
  std::vector<Link> links_;  // outlive the worker, which reads their slots
  std::vector<std::string> addresses_;
  UcxEndPtr end_;
  const UcxLibrary& ucp_;
  EventDescriptor event_;
  std::shared_ptr<void> listening_;

  // The turn's.
  std::size_t num_busy_ = 0;  // slots
  bool has_moved_ = false;    // since progress() began
  bool has_all_ = false;      // of what had come when UCX was asked last
  bool owes_word_ = false;    // somebody does not know yet what has been taken in
  bool is_closing_ = false;
  std::uint64_t looked_at_ = 0;  // the operation in which kept frames were looked at
  bool has_lingered_ = false;
  int suspect_ = -1;  // who is gone without a word
  Clock::time_point suspected_at_;

  // The owner's thread's.
  bool may_sleep_ = false;
  Clock::time_point wake_up_ = Clock::time_point::max();

  std::vector<std::atomic<bool>> have_left_;  // what the control plane says
};

void UcxKind::listen() {
  listening_ = listen_to(*cluster_, [this](int member) {
    have_left_[static_cast<std::size_t>(member)].store(true);
    wake();
  });
}

// ---------------------------------------------------------------------------------------------- connecting

void UcxKind::make_endpoint(Link& to) {
  if (to.endpoint != nullptr) return;
  to.reserve();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address =
      reinterpret_cast<const ucp_address_t*>(addresses_[static_cast<std::size_t>(to.rank)].data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* of, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {
    Link& link = *static_cast<Link*>(of);
    link.has_ended = true;
    link.kind->has_moved_ = true;
    // After a goodbye it is progress() that sees whether something is missing.
    if (!link.kind->is_closing_ && !link.has_said_goodbye) link.kind->note_end(link);
  };
  params.err_handler.arg = &to;
  const ucs_status_t status = ucp_.ep_create(end_->worker(), &params, &to.endpoint);
  if (status == UCS_OK) return;
  to.endpoint = nullptr;
  record_failure({.code = StatusCode::UNAVAILABLE,
                  .text = fmt::format("UCX has no way to {} that reports failures: {}",
                                      to_string(info_of(to.rank)), ucp_.status_string(status)),
                  .culprits = {info_of(to.rank)}});
}

void UcxKind::open(std::span<const int> peers, const Deadline& deadline) {
  for (const int each : peers) {
    make_endpoint(link(each));
    if (has_failed()) return;
    if (!post_small(link(each), UcxFrameKind::HELLO)) note_end(link(each));
  }
  std::vector<RankInfo> missing;
  for (;;) {
    missing.clear();
    const bool has_moved = progress();
    for (const int each : peers) {
      if (link(each).has_heard_hello) continue;
      missing.push_back(info_of(each));
      if (have_left_[static_cast<std::size_t>(each)].load()) note_departure(link(each));
    }
    if (missing.empty() || has_failed()) return;
    if (deadline.has_passed()) break;
    if (has_moved) continue;
    prepare_sleep();
    sleep(deadline.moment());
  }
  std::string text = fmt::format("connecting timed out: waiting for {}", names_of(missing));
  record_failure({.code = StatusCode::DEADLINE_EXCEEDED,
                  .text = std::move(text),
                  .culprits = std::move(missing)});
}

// ---------------------------------------------------------------------------------------------- moving

UcxHead UcxKind::head_to(Link& to, UcxFrameKind kind) {
  to.num_told = to.num_received;
  UcxHead head;
  head.kind = kind;
  head.rank = static_cast<std::uint32_t>(rank());
  head.session = cluster_->id();
  head.num_taken = to.num_received;
  head.head.kind = TcpFrameKind::GOODBYE;  // the one that says nothing else
  return head;
}

/// Whether it goes, or has gone.
bool UcxKind::post(Slot& slot, std::size_t size) {
  Link& to = *slot.link;
  if (to.endpoint == nullptr || to.has_ended) return false;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.user_data = &slot;
  param.cb.send = [](void* request, ucs_status_t /*status: the error handler has it too*/,
                     void* user_data) {
    Slot& sent = *static_cast<Slot*>(user_data);
    UcxKind& kind = *sent.link->kind;
    sent.is_busy = false;
    --kind.num_busy_;
    kind.has_moved_ = true;
    kind.ucp_.request_free(request);
  };
  const ucs_status_ptr_t request =
      ucp_.am_send_nbx(to.endpoint, kFrameId, nullptr, 0, slot.bytes, size, &param);
  if (UCS_PTR_IS_ERR(request)) {
    to.has_ended = true;
    return false;
  }
  if (request != nullptr) {
    slot.is_busy = true;
    ++num_busy_;
  }
  return true;
}

bool UcxKind::post_small(Link& to, UcxFrameKind kind) {
  if (to.small.is_busy) return false;
  encode_ucx_head(head_to(to, kind), to.small.bytes);
  return post(to.small, kUcxHeadBytes);
}

void UcxKind::start_send(Peer& peer, Transfer& transfer) {
  const bool is_first = peer.sends.is_empty();
  peer.sends.push_back(transfer);
  if (is_first) (void)push(peer.info.rank);
}

bool UcxKind::push(int to) {
  Link& link = this->link(to);
  TransferQueue& sends = peer(to).sends;
  bool has_moved = false;
  while (!sends.is_empty()) {
    if (link.has_ended || link.has_said_goodbye) {
      note_end(link);
      break;
    }
    Slot& slot = link.slots[link.num_sent % kUcxWindow];
    if (link.num_sent - link.num_taken >= kUcxWindow || slot.is_busy) break;
    Transfer& transfer = *sends.first();
    TransferState& state = state_of(transfer);
    const std::size_t size = std::min(state.size - state.moved, kUcxPayloadBytes);
    UcxHead head = head_to(link, UcxFrameKind::TCP_KIND);
    head.head = {.kind = TcpFrameKind::MESSAGE,
                 .payload_size = static_cast<std::uint32_t>(size),
                 .operation_count = operation_count(),
                 .number = state.number,
                 .size = state.size,
                 .offset = state.moved,
                 .operation = operation()};
    encode_ucx_head(head, slot.bytes);
    if (size != 0) std::memcpy(slot.bytes + kUcxHeadBytes, state.out + state.moved, size);
    if (!post(slot, kUcxHeadBytes + size)) {
      note_end(link);
      break;
    }
    ++link.num_sent;
    has_moved = true;
    state.moved += size;
    if (state.moved < state.size) continue;
    sends.remove(transfer);
    complete(transfer);
  }
  return has_moved;
}

void UcxKind::start_receive(Peer& peer, Transfer& transfer) { peer.receives.push_back(transfer); }

bool UcxKind::run_worker() {
  has_moved_ = false;
  has_all_ = false;
  for (int i = 0; i < kMaxProgress && !has_all_; ++i) {
    has_all_ = ucp_.worker_progress(end_->worker()) == 0;
  }
  return has_moved_;
}

bool UcxKind::progress() {
  bool has_moved = run_worker();
  if (std::exchange(looked_at_, operation_count()) != operation_count()) {
    for (Link& each : links_) (void)drain(each);  // what was ahead before may be in this operation
  }
  const bool has_more = for_active([this](int each) {
    Link& of = link(each);
    const bool has_pushed = push(each);
    const bool has_drained = drain(of);
    // What came before the goodbye has been given out by now.
    if (!peer(each).receives.is_empty() && (of.has_said_goodbye || of.has_ended)) note_end(of);
    return has_drained || has_pushed;
  });
  has_moved = has_moved || has_more;
  // Where a peer has left, sending may end the endpoint, with what has not been read from it: its goodbye is read first.
  if (owes_word_ && has_all_) say_taken();
  if (suspect_ >= 0 && Clock::now() >= suspected_at_ + kGrace) {
    record_failure({.code = StatusCode::UNAVAILABLE,
                    .text = to_string(info_of(suspect_)) + " is gone: UCX has lost it",
                    .culprits = {info_of(suspect_)}});
  }
  return has_moved;
}

void UcxKind::say_taken() {
  owes_word_ = false;
  for (Link& each : links_) {
    const bool is_there = !each.has_ended && !each.has_said_goodbye;
    if (!is_there || each.num_received - each.num_told < kEnoughTaken) continue;
    if (!post_small(each, UcxFrameKind::TAKEN) && !each.has_ended) owes_word_ = true;
  }
}

/// Called by UCX, in run_worker().
void UcxKind::take_in(std::span<const std::byte> frame) noexcept {
  if (is_closing_) return;
  int from = -1;
  try {
    const UcxHead head = decode_ucx_head(frame);
    // Who is no member has not got this member's address from the control plane: it does not count.
    if (head.session != cluster_->id() || head.rank >= links_.size() ||
        head.rank == static_cast<std::uint32_t>(rank())) {
      return;
    }
    from = static_cast<int>(head.rank);
    Link& link = links_[head.rank];
    has_moved_ = true;
    if (head.num_taken < link.num_taken || head.num_taken > link.num_sent) {
      return fail_by_nonsense(from, "it has taken in what was not sent");
    }
    link.num_taken = head.num_taken;
    const std::span<const std::byte> payload = frame.subspan(kUcxHeadBytes);
    if (head.kind == UcxFrameKind::HELLO) {
      link.has_heard_hello = true;
    } else if (head.kind == UcxFrameKind::TCP_KIND) {
      if (head.head.kind == TcpFrameKind::STOPPED) return hear(link, payload);
      if (head.head.kind == TcpFrameKind::GOODBYE) {
        link.has_said_goodbye = true;
        return;
      }
      if (has_failed()) return;
      if (!link.kept.is_empty() || !deliver(link, head, payload)) keep(link, frame);
    }
  } catch (const WireError& error) {
    if (from >= 0) fail_by_nonsense(from, error.what());
  } catch (const std::bad_alloc&) {
    if (from >= 0) fail_by_want(from);
  }
}

/// False: nobody has asked for it yet.
bool UcxKind::deliver(Link& from, const UcxHead& head, std::span<const std::byte> payload) {
  TransferQueue& receives = peer(from.rank).receives;
  if (receives.is_empty()) {
    // It may be ahead of this member, but not at the same place in another call.
    if (head.head.operation_count != operation_count() || head.head.operation == operation()) {
      return false;
    }
    fail_by_operation(from.rank, head.head.operation_count, head.head.operation);
    return true;
  }
  Transfer& transfer = *receives.first();
  TransferState& state = state_of(transfer);
  if (head.head.operation_count != operation_count() || head.head.operation != operation()) {
    fail_by_operation(from.rank, head.head.operation_count, head.head.operation);
    return true;
  }
  if (head.head.size != state.size) {
    fail_by_size(from.rank, state.number, head.head.size, state.size);
    return true;
  }
  if (head.head.number != state.number || head.head.offset != state.moved) {
    fail_by_nonsense(from.rank, "a frame out of order");
    return true;
  }
  if (!payload.empty()) std::memcpy(state.in + state.moved, payload.data(), payload.size());
  state.moved += payload.size();
  if (++from.num_received - from.num_told >= kEnoughTaken) owes_word_ = true;
  if (state.moved == state.size) {
    receives.remove(transfer);
    complete(transfer);
  }
  return true;
}

void UcxKind::keep(Link& from, std::span<const std::byte> frame) {
  if (!from.kept.push_back(frame)) {
    fail_by_nonsense(from.rank, "more than anybody has asked for");
  }
}

bool UcxKind::drain(Link& from) {
  bool has_drained = false;
  try {
    while (!from.kept.is_empty() && !has_failed()) {
      const std::span<const std::byte> frame = from.kept.front();
      if (!deliver(from, decode_ucx_head(frame), frame.subspan(kUcxHeadBytes))) break;
      has_drained = true;
      from.kept.pop_front();
    }
  } catch (const WireError& error) {
    fail_by_nonsense(from.rank, error.what());
  }
  return has_drained;
}

void UcxKind::fail_by_nonsense(int from, const char* what) {
  record_failure(
      {.code = StatusCode::INTERNAL,
       .text = fmt::format("{} sends what cannot be: {}", to_string(info_of(from)), what),
       .culprits = {info_of(from)}});
}

// ---------------------------------------------------------------------------------------------- sleeping

void UcxKind::prepare_sleep() {
  may_sleep_ = ucp_.worker_arm(end_->worker()) == UCS_OK;
  wake_up_ = suspect_ < 0 ? Clock::time_point::max() : suspected_at_ + kGrace;
  if (num_busy_ != 0) wake_up_ = std::min(wake_up_, Clock::now() + kPushPause);
}

void UcxKind::sleep(Clock::time_point until) {
  if (!may_sleep_) return;  // something has come already
  end_->sleep(event_, std::min(until, wake_up_));
}

// ---------------------------------------------------------------------------------------------- ends

void UcxKind::hear(Link& from, std::span<const std::byte> stop) {
  TransportFailure failure =
      decode_stop({reinterpret_cast<const char*>(stop.data()), stop.size()}, num_ranks());
  if (failure.origin < 0) failure.origin = from.rank;
  record_failure(std::move(failure));
}

/// What comes from there has come: it will not take or send any more.
void UcxKind::note_end(Link& of) {
  if (of.has_said_goodbye) {
    if (peer(of.rank).has_transfers()) note_departure(of);
  } else if (suspect_ < 0) {
    suspect_ = of.rank;
    suspected_at_ = Clock::now();
  }
}

void UcxKind::note_departure(Link& of) {
  record_failure({.code = StatusCode::UNAVAILABLE,
                  .text = to_string(info_of(of.rank)) + " is gone: it has left",
                  .culprits = {info_of(of.rank)}});
}

void UcxKind::tell(const TransportFailure& failure) noexcept {
  if (failure.is_known_to_all) return;
  try {
    TransportFailure told = failure;
    if (told.origin < 0) told.origin = rank();
    const std::string payload = encode_stop(told);
    for (Link& each : links_) {
      if (each.endpoint == nullptr || each.has_ended || each.last.is_busy) continue;
      UcxHead head = head_to(each, UcxFrameKind::TCP_KIND);
      head.head.kind = TcpFrameKind::STOPPED;
      head.head.payload_size = static_cast<std::uint32_t>(payload.size());
      each.last_words.assign(kUcxHeadBytes, '\0');
      each.last_words += payload;
      each.last.bytes = reinterpret_cast<std::byte*>(each.last_words.data());
      encode_ucx_head(head, each.last.bytes);
      (void)post(each.last, each.last_words.size());
    }
  } catch (const std::exception&) {
    // No memory for last words: the others see the endpoints end.
  }
}

void UcxKind::linger() noexcept {
  if (std::exchange(has_lingered_, true)) return;
  flush(/*with_endpoints=*/false);
}

/// Until UCX has done what it was given, or (with_endpoints) the network has; a moment at most.
void UcxKind::flush(bool with_endpoints) noexcept {
  const Clock::time_point latest = Clock::now() + kLinger;
  std::vector<void*> requests;
  if (with_endpoints) {
    for (Link& each : links_) {
      if (each.endpoint == nullptr || each.has_ended) continue;
      const ucp_request_param_t param{};
      const ucs_status_ptr_t request = ucp_.ep_flush_nbx(each.endpoint, &param);
      if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
    }
  }
  const auto is_done = [this](void* request) {
    return ucp_.request_check_status(request) != UCS_INPROGRESS;
  };
  while ((num_busy_ != 0 || !std::all_of(requests.begin(), requests.end(), is_done)) &&
         Clock::now() < latest) {
    if (run_worker()) continue;
    prepare_sleep();
    sleep(std::min(latest, Clock::now() + kPushPause));
  }
  for (void* const each : requests) ucp_.request_free(each);
}

void UcxKind::close() {
  listening_.reset();  // nobody calls this one any more
  const bool has_failed = this->has_failed();
  forget_all();
  is_closing_ = true;
  if (!has_failed) {
    for (Link& each : links_) {
      if (each.endpoint == nullptr || each.has_ended) continue;
      each.last_words.assign(kUcxHeadBytes, '\0');
      each.last.bytes = reinterpret_cast<std::byte*>(each.last_words.data());
      encode_ucx_head(head_to(each, UcxFrameKind::TCP_KIND), each.last.bytes);
      (void)post(each.last, kUcxHeadBytes);
    }
  }
  flush(/*with_endpoints=*/true);
  // By force: who does not answer is not waited for. What was flushed has arrived, or is the network's to deliver.
  std::vector<void*> requests;
  requests.reserve(links_.size());
  for (Link& each : links_) {
    if (each.endpoint == nullptr) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp_.ep_close_nbx(each.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) requests.push_back(request);
    each.endpoint = nullptr;
  }
  const Clock::time_point latest = Clock::now() + kLinger;
  for (void* const each : requests) {
    while (ucp_.request_check_status(each) == UCS_INPROGRESS && Clock::now() < latest) {
      (void)run_worker();
    }
    ucp_.request_free(each);
  }
  end_.reset();
}

std::unique_ptr<TransportKind> make_ucx_kind(std::shared_ptr<Cluster> cluster,
                                             const std::vector<RankInfo>& members, bool spins,
                                             UcxEndPtr end, std::vector<std::string> addresses) {
  return std::make_unique<UcxKind>(std::move(cluster), members, spins, std::move(end),
                                   std::move(addresses));
}

}  // namespace crossdevice::detail

#endif
