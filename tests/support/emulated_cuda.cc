// SPDX-License-Identifier: Apache-2.0
/// Devices, streams, events, and what every call and every operation goes through. Memory, capture and what tests ask have files of their own.
#include "support/emulated_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "support/emulated_cuda_call.h"

namespace crossdevice::testing {
namespace {

using detail::CudaStatus;

constexpr int kCudaVersion = 13000;

// Of the emulation that the thread asked last; another one finds device 0.
struct CurrentDevice {
  const void* owner = nullptr;
  int device = 0;
};
thread_local CurrentDevice current;

}  // namespace

EmulatedCuda::EmulatedCuda(int num_devices, std::size_t bytes_per_device)
    : num_devices_(num_devices),
      memory_(num_devices, bytes_per_device),
      kept_(static_cast<std::size_t>(num_devices), CudaStatus::SUCCESS),
      num_recoveries_(static_cast<std::size_t>(num_devices), 0),
      peers_(static_cast<std::size_t>(num_devices),
             std::vector<bool>(static_cast<std::size_t>(num_devices), true)),
      streams_(machine_) {
  auto lock = machine_.lock();
  defaults_.reserve(static_cast<std::size_t>(num_devices));
  for (int device = 0; device < num_devices; ++device) {
    defaults_.push_back(&streams_.create(lock, device));
    defaults_.back()->is_default = true;
  }
  current = {};
}

EmulatedCuda::~EmulatedCuda() { stop(); }

void EmulatedCuda::stop() { streams_.stop(); }

int EmulatedCuda::current_device() const { return current.owner == this ? current.device : 0; }

// ---- what every call goes through

std::optional<CudaStatus> EmulatedCuda::Call::note(int device, const void* handle,
                                                   std::size_t size_bytes, bool is_query) {
  if (HostFunctionScope::is_inside()) {
    cuda_.machine_.report(lock, fmt::format("{} was called by a host function", function_));
    return kNotPermitted;
  }
  if (cuda_.machine_.is_stopping(lock)) {
    (void)std::fprintf(stderr, "emulated GPUs: a call of CUDA after its end\n");
    return kCudartUnloading;
  }
  const EmulatedCall call{function_, device, handle, std::this_thread::get_id(), size_bytes};
  EmulatedCalls::Outcome outcome = cuda_.calls_.begin(lock, call, is_query);
  fault = std::move(outcome.operation);
  if (outcome.status.has_value()) return CudaStatus{*outcome.status};
  return std::nullopt;
}

std::optional<CudaStatus> EmulatedCuda::Call::begin(int device, const void* handle,
                                                    std::size_t size_bytes) {
  if (const auto refused = note(device, handle, size_bytes, false)) return refused;
  if (device < 0 || device >= cuda_.num_devices_) return CudaStatus::INVALID_DEVICE;
  const CudaStatus kept = cuda_.kept_[static_cast<std::size_t>(device)];
  if (kept != CudaStatus::SUCCESS) return kept;
  return std::nullopt;
}

std::optional<CudaStatus> EmulatedCuda::Call::begin_query(int device, const void* handle) {
  return note(device, handle, 0, true);
}

std::optional<CudaStatus> EmulatedCuda::Call::begin_on(detail::CudaStream handle,
                                                       std::size_t size_bytes) {
  stream = cuda_.find_stream(lock, handle);
  if (stream == nullptr) {
    cuda_.machine_.report(lock,
                          fmt::format("{}: the stream was destroyed, or never created", function_));
    return kInvalidResourceHandle;
  }
  return begin(stream->device, handle, size_bytes);
}

EmulatedStream* EmulatedCuda::find_stream(EmulatedMachine::Lock& lock, detail::CudaStream handle) {
  return find_stream(lock, handle, current_device());
}

EmulatedStream* EmulatedCuda::find_stream(EmulatedMachine::Lock& lock, detail::CudaStream handle,
                                          int device) {
  if (handle == nullptr) return defaults_[static_cast<std::size_t>(device)];
  EmulatedStream* const stream = streams_.find(lock, handle);
  return stream == nullptr || stream->is_destroyed || stream->is_default ? nullptr : stream;
}

EmulatedCuda::Event* EmulatedCuda::find_event(EmulatedMachine::Lock& lock,
                                              detail::CudaEvent handle) {
  if (live_events_.contains(handle)) return reinterpret_cast<Event*>(handle);
  machine_.report(lock, "an event was used that was destroyed, or never created");
  return nullptr;
}

void EmulatedCuda::fail_device(EmulatedMachine::Lock& lock, int device, CudaStatus status,
                               const std::string& text) {
  if (!text.empty()) machine_.report(lock, text);
  CudaStatus& kept = kept_[static_cast<std::size_t>(device)];
  if (kept == CudaStatus::SUCCESS) kept = status;
  machine_.notify();
}

// ---- what every operation goes through

void EmulatedCuda::note_access(EmulatedMachine::Lock& lock, EmulatedStream& queue,
                               const std::string& function, Allocation& allocation,
                               const MemoryUse& use) {
  if (!checks_order_ || use.size_bytes == 0) return;
  const auto begin =
      static_cast<std::size_t>(static_cast<const std::byte*>(use.pointer) - allocation.address);
  std::string conflict =
      allocation.history.add({begin, begin + use.size_bytes, use.is_written, queue.number,
                              queue.tick + 1, queue.device, function},
                             queue.clock);
  if (!conflict.empty()) machine_.report(lock, std::move(conflict));
}

// What the operation uses has no order with itself, but with all that comes before it.
std::function<void()> EmulatedCuda::instantiate(EmulatedMachine::Lock& lock,
                                                const Operation& operation, EmulatedStream& queue) {
  (void)streams_.order_of(lock, queue);
  for (const ResolvedUse& use : operation.uses) {
    if (use.allocation == nullptr) continue;
    note_access(lock, queue, operation.function, *use.allocation, use.use);
  }
  EmulatedBody body = operation.make(lock, queue);
  queue.clock.set(queue.number, ++queue.tick);
  const auto index = static_cast<std::size_t>(operation.device);
  return [this, index, recoveries = num_recoveries_[index], device = operation.device,
          function = operation.function, uses = operation.uses, is_kernel = operation.is_kernel,
          body = std::move(body)] {
    std::vector<std::byte*> views;
    views.reserve(uses.size());
    {
      auto held = machine_.lock();
      if (kept_[index] != CudaStatus::SUCCESS || num_recoveries_[index] != recoveries) return;
      for (const ResolvedUse& use : uses) {
        const std::string wrong = memory_.check_now(use, device, is_kernel);
        if (!wrong.empty()) {
          fail_device(held, device, kIllegalAddress, fmt::format("{}: {}", function, wrong));
          return;
        }
        views.push_back(use.view);
      }
    }
    body(views);
  };
}

void EmulatedCuda::apply_fault(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                               const Fault& fault) {
  if (fault.kind == FaultKind::HANG_OPERATION) {
    streams_.push_gate(lock, stream);
  } else if (fault.kind == FaultKind::DELAY_OPERATION) {
    streams_.push(lock, stream, [this, delay = fault.delay] {
      auto held = machine_.lock();
      (void)machine_.await_for(held, delay, [] { return false; });
    });
  } else if (fault.kind == FaultKind::FAIL_OPERATION) {
    streams_.push(lock, stream, [this, device = stream.device, status = CudaStatus{fault.status}] {
      auto held = machine_.lock();
      fail_device(held, device, status, "");
    });
  }
}

CudaStatus EmulatedCuda::submit(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                                std::string_view function, const std::vector<MemoryUse>& uses,
                                bool is_kernel, MakeBody make, const std::optional<Fault>& fault) {
  std::vector<ResolvedUse> resolved(uses.size());
  for (std::size_t use = 0; use < uses.size(); ++use) {
    const std::string wrong = memory_.resolve(uses[use], &resolved[use]);
    if (wrong.empty()) continue;
    fail_device(lock, stream.device, kIllegalAddress, fmt::format("{}: {}", function, wrong));
    return kIllegalAddress;
  }
  Operation operation{stream.device, std::string(function), std::move(resolved), is_kernel,
                      std::move(make)};
  if (stream.capture != nullptr) {
    EmulatedCapture& capture = *stream.capture;
    if (!capture.is_valid()) return CudaStatus::STREAM_CAPTURE_INVALIDATED;
    capture.steps.push_back({EmulatedCapture::StepKind::RUN, capture.branch_of(stream), 0,
                             [this, operation = std::move(operation)](EmulatedMachine::Lock& held,
                                                                      EmulatedStream& queue) {
                               return instantiate(held, operation, queue);
                             }});
    return CudaStatus::SUCCESS;
  }
  if (fault.has_value()) apply_fault(lock, stream, *fault);
  streams_.push(lock, stream, instantiate(lock, operation, stream));
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::launch(EmulatedLaunch launch) {
  Call call(*this, launch.function);
  if (const auto refused = call.begin_on(launch.stream, launch.size_bytes)) return *refused;
  if (launch.is_kernel && current_device() != call.stream->device) {
    machine_.report(call.lock, fmt::format("{}: the current device is {}, the stream's is {}",
                                           launch.function, current_device(), call.stream->device));
    return kInvalidResourceHandle;
  }
  return submit(
      call.lock, *call.stream, launch.function, launch.uses, launch.is_kernel,
      [body = std::move(launch.body)](EmulatedMachine::Lock&, EmulatedStream&) { return body; },
      call.fault);
}

// The function may tell the host what has been done before it.
CudaStatus EmulatedCuda::launch_host_function(detail::CudaStream stream, void (*function)(void*),
                                              void* argument) {
  Call call(*this, "cuda.launch_host_function");
  if (const auto refused = call.begin_on(stream)) return *refused;
  return submit(
      call.lock, *call.stream, "cuda.launch_host_function", {}, false,
      [this, function, argument](EmulatedMachine::Lock&, EmulatedStream& queue) {
        return [this, function, argument, clock = queue.clock](std::span<std::byte* const>) {
          {
            auto lock = machine_.lock();
            streams_.learn(lock, clock);
          }
          const HostFunctionScope scope;
          function(argument);
        };
      },
      call.fault);
}

// ---- what there is

CudaStatus EmulatedCuda::driver_version(int* version) {
  Call call(*this, "cuda.driver_version");
  if (const auto refused = call.begin_query(-1)) return *refused;
  *version = kCudaVersion;
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::runtime_version(int* version) {
  Call call(*this, "cuda.runtime_version");
  if (const auto refused = call.begin_query(-1)) return *refused;
  *version = kCudaVersion;
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::get_device_count(int* count) {
  Call call(*this, "cuda.get_device_count");
  if (const auto refused = call.begin_query(-1)) return *refused;
  *count = num_devices_;
  return num_devices_ == 0 ? CudaStatus::NO_DEVICE : CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::get_device_properties(detail::CudaDeviceProperties* properties,
                                               int device) {
  Call call(*this, "cuda.get_device_properties");
  if (const auto refused = call.begin_query(device)) return *refused;
  if (device < 0 || device >= num_devices_) return CudaStatus::INVALID_DEVICE;
  *properties = {};
  properties->name = "Emulated GPU";
  properties->uuid.fill(static_cast<unsigned char>(first_gpu_ + device + 1));
  properties->pci_bus_id = fmt::format("0000:{:02x}:00.0", device + 1);
  properties->compute_capability = device < num_old_ ? 80 : 90;
  properties->num_multiprocessors = 132;
  properties->total_memory_bytes = memory_.bytes_per_device();
  properties->has_memory_pools = true;
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::get_device(int* device) {
  Call call(*this, "cuda.get_device");
  if (const auto refused = call.begin_query(current_device())) return *refused;
  *device = current_device();
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::set_device(int device) {
  Call call(*this, "cuda.set_device");
  if (const auto refused = call.begin_query(device)) return *refused;
  if (device < 0 || device >= num_devices_) return CudaStatus::INVALID_DEVICE;
  current = {this, device};
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::can_access_peer(bool* can, int device, int peer) {
  Call call(*this, "cuda.can_access_peer");
  if (const auto refused = call.begin_query(device)) return *refused;
  const bool are_devices = device >= 0 && device < num_devices_ && peer >= 0 && peer < num_devices_;
  if (!are_devices) return CudaStatus::INVALID_DEVICE;
  *can = device != peer && peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)];
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::enable_peer_access(int peer) {
  Call call(*this, "cuda.enable_peer_access");
  const int device = current_device();
  if (const auto refused = call.begin(device)) return *refused;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  if (peer < 0 || peer >= num_devices_ || peer == device) return CudaStatus::INVALID_DEVICE;
  if (!peers_[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)]) {
    return kPeerAccessUnsupported;
  }
  if (memory_.has_access(device, peer)) return CudaStatus::PEER_ACCESS_ALREADY_ENABLED;
  memory_.allow_access(device, peer);
  return CudaStatus::SUCCESS;
}

std::string EmulatedCuda::error_text(CudaStatus status) const {
  return fmt::format("cudaError{}: an emulated GPU says so", static_cast<int>(status));
}

// ---- streams

CudaStatus EmulatedCuda::stream_create(detail::CudaStream* stream) {
  Call call(*this, "cuda.stream_create");
  if (const auto refused = call.begin(current_device())) return *refused;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  *stream = to_handle<detail::CudaStream>(&streams_.create(call.lock, current_device()));
  ++num_live_streams_;
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::stream_destroy(detail::CudaStream stream) {
  Call call(*this, "cuda.stream_destroy");
  if (const auto refused = call.begin_on(stream)) return *refused;
  if (call.stream->is_default) return kInvalidResourceHandle;
  if (call.stream->capture != nullptr) {
    machine_.report(call.lock, "a stream was destroyed while it captured");
    return invalidate(call.lock, *call.stream->capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
  }
  call.stream->is_destroyed = true;
  call.stream->wake.notify_all();
  --num_live_streams_;
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::stream_query(detail::CudaStream stream) {
  Call call(*this, "cuda.stream_query");
  EmulatedStream* const found = find_stream(call.lock, stream);
  if (const auto refused = call.begin_query(found == nullptr ? -1 : found->device, stream)) {
    return *refused;
  }
  if (found == nullptr) {
    machine_.report(call.lock, "cuda.stream_query: the stream was destroyed, or never created");
    return kInvalidResourceHandle;
  }
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  if (found->capture != nullptr) {
    return invalidate(call.lock, *found->capture, CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
  }
  const CudaStatus kept = kept_[static_cast<std::size_t>(found->device)];
  if (kept != CudaStatus::SUCCESS) return kept;
  if (!found->is_idle()) return CudaStatus::NOT_READY;
  streams_.learn(call.lock, streams_.order_of(call.lock, *found));
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::stream_wait_event(detail::CudaStream stream, detail::CudaEvent event) {
  Call call(*this, "cuda.stream_wait_event");
  if (const auto refused = call.begin_on(stream)) return *refused;
  const Event* const awaited = find_event(call.lock, event);
  if (awaited == nullptr) return kInvalidResourceHandle;
  EmulatedStream& waits = *call.stream;
  EmulatedCapture* const source = awaited->capture.get();
  if (waits.capture == nullptr && source == nullptr) {
    if (awaited->moment == nullptr) return CudaStatus::SUCCESS;
    if (call.fault.has_value()) apply_fault(call.lock, waits, *call.fault);
    streams_.push_wait(call.lock, waits, awaited->moment);
    return CudaStatus::SUCCESS;
  }
  if (waits.capture == nullptr) {
    const bool is_active =
        std::find(captures_.begin(), captures_.end(), awaited->capture) != captures_.end();
    if (!is_active) return CudaStatus::CAPTURED_EVENT;
    if (waits.is_default)
      return invalidate(call.lock, *source, CudaStatus::STREAM_CAPTURE_IMPLICIT);
    waits.capture = awaited->capture;
    source->branches.push_back(&waits);
  } else if (source == nullptr) {
    if (awaited->moment == nullptr) return CudaStatus::SUCCESS;
    return invalidate(call.lock, *waits.capture, CudaStatus::STREAM_CAPTURE_ISOLATION);
  } else if (source != waits.capture.get()) {
    return invalidate(call.lock, *waits.capture, CudaStatus::STREAM_CAPTURE_MERGE);
  }
  if (!source->is_valid()) return CudaStatus::STREAM_CAPTURE_INVALIDATED;
  source->steps.push_back(
      {EmulatedCapture::StepKind::WAIT, source->branch_of(waits), awaited->slot, nullptr});
  return CudaStatus::SUCCESS;
}

// ---- events

CudaStatus EmulatedCuda::event_create(detail::CudaEvent* event) {
  Call call(*this, "cuda.event_create");
  if (const auto refused = call.begin(current_device())) return *refused;
  *event = make_event(/*has_timing=*/false);
  return CudaStatus::SUCCESS;
}

detail::CudaEvent EmulatedCuda::make_event(bool has_timing) {
  events_.push_back(std::make_unique<Event>());
  events_.back()->device = current_device();
  events_.back()->has_timing = has_timing;
  live_events_.insert(events_.back().get());
  return to_handle<detail::CudaEvent>(events_.back().get());
}

CudaStatus EmulatedCuda::event_create_with_timing(detail::CudaEvent* event) {
  Call call(*this, "cuda.event_create_with_timing");
  if (const auto refused = call.begin(current_device())) return *refused;
  *event = make_event(/*has_timing=*/true);
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::event_elapsed(float* milliseconds, detail::CudaEvent begin,
                                       detail::CudaEvent end) {
  Call call(*this, "cuda.event_elapsed");
  if (const auto refused = call.begin_query(-1, end)) return *refused;
  const Event* const first = find_event(call.lock, begin);
  const Event* const second = find_event(call.lock, end);
  const auto is_timed = [](const Event* event) {
    return event != nullptr && event->has_timing && event->moment != nullptr;
  };
  if (!is_timed(first) || !is_timed(second) || first->device != second->device) {
    return kInvalidResourceHandle;
  }
  if (!first->moment->has_come || !second->moment->has_come) return CudaStatus::NOT_READY;
  *milliseconds =
      std::chrono::duration<float, std::milli>(second->moment->came - first->moment->came).count();
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::event_destroy(detail::CudaEvent event) {
  Call call(*this, "cuda.event_destroy");
  if (const auto refused = call.begin_query(-1, event)) return *refused;
  Event* const destroyed = find_event(call.lock, event);
  if (destroyed == nullptr) return kInvalidResourceHandle;
  live_events_.erase(event);
  *destroyed = {};
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::event_record(detail::CudaEvent event, detail::CudaStream stream) {
  Call call(*this, "cuda.event_record");
  if (const auto refused = call.begin_on(stream)) return *refused;
  Event* const recorded = find_event(call.lock, event);
  if (recorded == nullptr) return kInvalidResourceHandle;
  if (recorded->device != call.stream->device) {
    machine_.report(call.lock, fmt::format("an event of device {} was recorded on a stream of {}",
                                           recorded->device, call.stream->device));
    return kInvalidResourceHandle;
  }
  if (call.stream->capture != nullptr) {
    EmulatedCapture& capture = *call.stream->capture;
    if (!capture.is_valid()) return CudaStatus::STREAM_CAPTURE_INVALIDATED;
    recorded->moment = nullptr;
    recorded->capture = call.stream->capture;
    recorded->slot = capture.num_slots++;
    capture.steps.push_back({EmulatedCapture::StepKind::RECORD, capture.branch_of(*call.stream),
                             recorded->slot, nullptr});
    return CudaStatus::SUCCESS;
  }
  if (call.fault.has_value()) apply_fault(call.lock, *call.stream, *call.fault);
  recorded->capture = nullptr;
  recorded->moment = streams_.push_moment(call.lock, *call.stream);
  return CudaStatus::SUCCESS;
}

CudaStatus EmulatedCuda::event_query(detail::CudaEvent event) {
  Call call(*this, "cuda.event_query");
  if (const auto refused = call.begin_query(-1, event)) return *refused;
  const Event* const asked = find_event(call.lock, event);
  if (asked == nullptr) return kInvalidResourceHandle;
  if (const auto refused = refuse_while_capturing(call.lock)) return *refused;
  if (asked->capture != nullptr)
    return invalidate(call.lock, *asked->capture, CudaStatus::CAPTURED_EVENT);
  const CudaStatus kept = kept_[static_cast<std::size_t>(asked->device)];
  if (kept != CudaStatus::SUCCESS) return kept;
  if (asked->moment == nullptr) return CudaStatus::SUCCESS;
  if (!asked->moment->has_come) return CudaStatus::NOT_READY;
  streams_.learn(call.lock, asked->moment->clock);
  return CudaStatus::SUCCESS;
}

// What the host has waited for, the pools know; what it has only asked for, they do not.
CudaStatus EmulatedCuda::event_synchronize(detail::CudaEvent event) {
  const CudaStatus status = event_query(event);
  Call call(*this, "cuda.event_synchronize");
  if (const auto refused = call.begin_query(-1, event)) return *refused;
  if (status == CudaStatus::NOT_READY) {
    machine_.report(call.lock, "cuda.event_synchronize: the host would be blocked");
  }
  if (status != CudaStatus::SUCCESS) return status;
  for (const auto& pool : pools_) {
    for (EmulatedPool::Cached& cached : pool->cached) cached.is_known = cached.freed->has_come;
  }
  return CudaStatus::SUCCESS;
}

bool EmulatedCuda::await_streams(EmulatedMachine::Lock& lock,
                                 const std::vector<EmulatedStream*>& streams,
                                 std::optional<std::chrono::milliseconds> limit) {
  std::vector<std::uint64_t> goals;
  goals.reserve(streams.size());
  EmulatedClock clock;
  for (EmulatedStream* stream : streams) {
    goals.push_back(stream->num_enqueued);
    clock.merge(streams_.order_of(lock, *stream));
  }
  const auto are_there = [&] {
    for (std::size_t index = 0; index < streams.size(); ++index) {
      if (streams[index]->num_completed < goals[index]) return false;
    }
    return true;
  };
  const bool have_come = limit.has_value() ? machine_.await_for(lock, *limit, are_there)
                                           : machine_.await(lock, are_there);
  if (have_come) streams_.learn(lock, clock);
  return have_come;
}

}  // namespace crossdevice::testing
