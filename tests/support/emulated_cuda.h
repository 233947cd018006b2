// SPDX-License-Identifier: Apache-2.0
/// GPUs without GPUs: CUDA's run time over host memory, with real asynchrony and CUDA's rules.
///
/// What CUDA leaves undefined is reported: as a violation (text, on stderr too), and as a status that the device keeps, as CUDA does after an illegal
/// address. A test asserts that violations() is empty.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/device/cuda_api.h"

#include "support/allocation_counter.h"
#include "support/emulated_calls.h"
#include "support/emulated_capture.h"
#include "support/emulated_machine.h"
#include "support/emulated_memory.h"
#include "support/emulated_stream.h"

namespace crossdevice::testing {

// cudaError_t of which the library knows only the number.
inline constexpr detail::CudaStatus kCudartUnloading{4};
inline constexpr detail::CudaStatus kPeerAccessUnsupported{217};
inline constexpr detail::CudaStatus kInvalidResourceHandle{400};
inline constexpr detail::CudaStatus kIllegalAddress{700};
inline constexpr detail::CudaStatus kMisalignedAddress{716};
inline constexpr detail::CudaStatus kNotPermitted{800};

/// What runs in stream order; the pointers are those of the uses, in their order, as the emulation may touch them.
using EmulatedBody = std::function<void(std::span<std::byte* const> views)>;

/// One operation for a stream: a kernel, or a copy.
struct EmulatedLaunch {
  std::string_view function;  ///< as the log calls it
  detail::CudaStream stream = nullptr;
  std::size_t size_bytes = 0;
  std::vector<MemoryUse> uses;
  bool is_kernel =
      true;  ///< needs the stream's device as the current one, and access to what it uses
  EmulatedBody body;
};

/// Threads  any, as the table. After stop() every call fails.
class EmulatedCuda final : public detail::CudaApi {
 public:
  explicit EmulatedCuda(int num_devices, std::size_t bytes_per_device = std::size_t{2} << 30);
  ~EmulatedCuda() override;
  EmulatedCuda(const EmulatedCuda&) = delete;
  EmulatedCuda& operator=(const EmulatedCuda&) = delete;

  // ---- for tests
  [[nodiscard]] EmulatedCalls& calls() { return calls_; }
  [[nodiscard]] std::vector<std::string> violations() { return machine_.violations(); }
  /// Forgets them, and every device's error. What was enqueued on a device that had failed is never done, however late its turn comes.
  void clear_violations();
  /// A kernel that never ends, from now on at the end of the stream's queue.
  void block_stream(detail::CudaStream stream);
  void release_stream(detail::CudaStream stream);
  /// Ends all that would never end: blocked streams, faults, kernels and calls that wait for other ranks.
  void release_everything();
  /// Until everything that all streams have now is done; false when the limit passes.
  [[nodiscard]] bool synchronize(std::chrono::milliseconds limit = std::chrono::seconds(30));
  [[nodiscard]] bool synchronize(detail::CudaStream stream,
                                 std::chrono::milliseconds limit = std::chrono::seconds(30));
  /// Where a test may read and write what `pointer` names; data of a device is touched by nobody else on the host.
  [[nodiscard]] void* view(const void* pointer);
  template <class T>
  [[nodiscard]] T* view(T* pointer) {
    return static_cast<T*>(view(static_cast<const void*>(pointer)));
  }
  /// Memory of the application's own: cudaMalloc, cudaFree (without their synchronisation).
  [[nodiscard]] void* malloc_device(int device, std::size_t size_bytes);
  void free_device(void* pointer);
  /// What can_access_peer() says; every pair can at first. Before anybody asks.
  void set_peers(int device, int peer, bool can);
  /// As if these were the host's GPUs from that one on, as CUDA_VISIBLE_DEVICES shows them. Before anybody asks.
  void set_first_gpu(int number) { first_gpu_ = number; }
  /// The first so many have compute capability 8.0, the others 9.0. None at first. Before anybody asks.
  void set_old_gpus(int count) { num_old_ = count; }
  /// As if an operation of that device had failed: the device keeps the status.
  void fail_device(int device, detail::CudaStatus status);
  /// Allocations that were not given back, pinned memory too.
  [[nodiscard]] std::size_t num_allocations();
  /// Of these, the host's.
  [[nodiscard]] std::size_t num_pinned();
  /// Whether two uses of memory that no event, no stream and nothing that the host has waited for puts in an order are violations, one of them being a
  /// write: by the order of calls, whenever they happen to run. On at first.
  void set_checks_order(bool checks);
  /// Streams and events that were created and not destroyed.
  [[nodiscard]] std::size_t num_streams();
  [[nodiscard]] std::size_t num_events();
  void stop();

  // ---- capture: the application's part of CUDA, with CUDA's statuses
  detail::CudaStatus begin_capture(detail::CudaStream stream, CaptureMode mode);
  /// The graph, already instantiated.
  detail::CudaStatus end_capture(detail::CudaStream stream, EmulatedGraph* graph);
  detail::CudaStatus launch_graph(EmulatedGraph graph, detail::CudaStream stream);
  detail::CudaStatus destroy_graph(EmulatedGraph graph);

  // ---- for the other tables
  detail::CudaStatus launch(EmulatedLaunch launch);
  [[nodiscard]] EmulatedMachine& machine() { return machine_; }
  [[nodiscard]] EmulatedStreams& streams() { return streams_; }
  [[nodiscard]] int current_device() const;
  [[nodiscard]] int num_devices() const { return num_devices_; }
  /// The stream of a handle, null the current device's default one; null: there is none.
  [[nodiscard]] EmulatedStream* find_stream(EmulatedMachine::Lock& lock, detail::CudaStream handle);
  [[nodiscard]] EmulatedStream* find_stream(EmulatedMachine::Lock& lock, detail::CudaStream handle,
                                            int device);
  /// Enqueues, or records where the stream captures. `make` gives the body each time that it is launched, and the queue that it will run in.
  using MakeBody = std::function<EmulatedBody(EmulatedMachine::Lock& lock, EmulatedStream& queue)>;
  detail::CudaStatus submit(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                            std::string_view function, const std::vector<MemoryUse>& uses,
                            bool is_kernel, MakeBody make,
                            const std::optional<Fault>& fault = std::nullopt);
  /// What the device keeps.
  [[nodiscard]] detail::CudaStatus kept(EmulatedMachine::Lock& /*lock*/, int device) const {
    return kept_[static_cast<std::size_t>(device)];
  }
  /// The capture becomes invalid, for that reason, which is returned.
  detail::CudaStatus invalidate(EmulatedMachine::Lock& lock, EmulatedCapture& capture,
                                detail::CudaStatus status);
  /// The device keeps `status`; a violation of that text.
  void fail_device(EmulatedMachine::Lock& lock, int device, detail::CudaStatus status,
                   const std::string& text);

  // ---- CudaApi
  detail::CudaStatus driver_version(int* version) override;
  detail::CudaStatus runtime_version(int* version) override;
  detail::CudaStatus get_device_count(int* count) override;
  detail::CudaStatus get_device_properties(detail::CudaDeviceProperties* properties,
                                           int device) override;
  detail::CudaStatus get_device(int* device) override;
  detail::CudaStatus set_device(int device) override;
  detail::CudaStatus can_access_peer(bool* can, int device, int peer) override;
  detail::CudaStatus enable_peer_access(int peer) override;
  detail::CudaStatus get_pointer_attributes(detail::CudaPointerAttributes* attributes,
                                            const void* pointer) override;
  [[nodiscard]] std::string error_text(detail::CudaStatus status) const override;
  detail::CudaStatus create_pool(detail::CudaPool* pool, int device) override;
  detail::CudaStatus set_pool_access(detail::CudaPool pool, int device) override;
  detail::CudaStatus trim_pool(detail::CudaPool pool) override;
  detail::CudaStatus get_pool_use(detail::CudaPoolUse* use, detail::CudaPool pool) override;
  detail::CudaStatus malloc_from_pool_async(void** pointer, std::size_t size_bytes,
                                            detail::CudaPool pool,
                                            detail::CudaStream stream) override;
  detail::CudaStatus free_async(void* pointer, detail::CudaStream stream) override;
  detail::CudaStatus malloc_host(void** pointer, std::size_t size_bytes) override;
  detail::CudaStatus free_host(void* pointer) override;
  detail::CudaStatus memcpy_async(void* destination, const void* source, std::size_t size_bytes,
                                  detail::CudaStream stream) override;
  detail::CudaStatus memset_async(void* destination, int byte, std::size_t size_bytes,
                                  detail::CudaStream stream) override;
  detail::CudaStatus stream_create(detail::CudaStream* stream) override;
  detail::CudaStatus stream_destroy(detail::CudaStream stream) override;
  detail::CudaStatus stream_query(detail::CudaStream stream) override;
  detail::CudaStatus stream_wait_event(detail::CudaStream stream, detail::CudaEvent event) override;
  detail::CudaStatus stream_get_capture(detail::CudaStream stream,
                                        detail::CudaCaptureStatus* status) override;
  detail::CudaStatus launch_host_function(detail::CudaStream stream, void (*function)(void*),
                                          void* argument) override;
  detail::CudaStatus exchange_capture_mode(detail::CudaCaptureMode* mode) override;
  detail::CudaStatus event_create(detail::CudaEvent* event) override;
  detail::CudaStatus event_create_with_timing(detail::CudaEvent* event) override;
  detail::CudaStatus event_elapsed(float* milliseconds, detail::CudaEvent begin,
                                   detail::CudaEvent end) override;
  detail::CudaStatus event_destroy(detail::CudaEvent event) override;
  detail::CudaStatus event_record(detail::CudaEvent event, detail::CudaStream stream) override;
  detail::CudaStatus event_query(detail::CudaEvent event) override;
  /// Of one that has not come: a violation, since the host would be blocked.
  detail::CudaStatus event_synchronize(detail::CudaEvent event) override;

 private:
  struct Event;
  class Call;

  detail::CudaEvent make_event(bool has_timing);
  Event* find_event(EmulatedMachine::Lock& lock, detail::CudaEvent handle);
  EmulatedPool* find_pool(EmulatedMachine::Lock& lock, detail::CudaPool handle);
  /// Until all that they have now is done, at most so long; then the host knows it.
  bool await_streams(EmulatedMachine::Lock& lock, const std::vector<EmulatedStream*>& streams,
                     std::optional<std::chrono::milliseconds> limit);
  void trim(EmulatedMachine::Lock& lock, EmulatedPool& pool);
  std::shared_ptr<Allocation> take_from_pool(EmulatedMachine::Lock& lock, EmulatedPool& pool,
                                             std::size_t size_bytes, const EmulatedStream& stream);
  /// An operation whose time has come to be launched, on a queue of `device`.
  struct Operation {
    int device = -1;
    std::string function;
    std::vector<ResolvedUse> uses;
    bool is_kernel = true;
    MakeBody make;
  };
  std::function<void()> instantiate(EmulatedMachine::Lock& lock, const Operation& operation,
                                    EmulatedStream& queue);
  /// Reports a use that has no order with another one's.
  void note_access(EmulatedMachine::Lock& lock, EmulatedStream& queue, const std::string& function,
                   Allocation& allocation, const MemoryUse& use);
  void apply_fault(EmulatedMachine::Lock& lock, EmulatedStream& stream, const Fault& fault);
  /// Refuses what must not happen while somebody captures, and invalidates that capture.
  std::optional<detail::CudaStatus> refuse_while_capturing(EmulatedMachine::Lock& lock);
  /// What a graph, or a capture that came to nothing, holds.
  void release(EmulatedMachine::Lock& lock, EmulatedCapture& graph);
  void launch_steps(EmulatedMachine::Lock& lock, EmulatedCapture& graph, EmulatedStream& stream);

  const int num_devices_;
  EmulatedMachine machine_;
  EmulatedCalls calls_{machine_};
  EmulatedMemory memory_;
  std::vector<detail::CudaStatus> kept_;     ///< per device: the error that it keeps
  std::vector<std::size_t> num_recoveries_;  ///< per device: how many it has kept no longer
  std::vector<std::vector<bool>> peers_;
  std::vector<EmulatedStream*> defaults_;
  std::vector<std::unique_ptr<Event>> events_;
  std::set<const void*> live_events_;
  std::vector<std::unique_ptr<EmulatedPool>> pools_;
  std::vector<std::shared_ptr<EmulatedCapture>> captures_;  ///< that were begun and have not ended
  std::vector<std::shared_ptr<EmulatedCapture>> graphs_;
  std::uint64_t num_live_streams_ = 0;
  bool checks_order_ = true;
  int first_gpu_ = 0;
  int num_old_ = 0;
  EmulatedStreams streams_;  // last: its threads use the rest
};

}  // namespace crossdevice::testing
