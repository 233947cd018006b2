// SPDX-License-Identifier: Apache-2.0
/// A batch whose buffers lie in several processes: announced by each, learnt by all, and reduced window by window where some of it has to be staged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/shared_memory_group.h"
#include "crossdevice/device/tensor.h"

#include "collective/detail/slot_stream.h"
#include "collective/detail/window_plan.h"

namespace crossdevice::detail {

/// The calls of an operation, on every worker with values that are equal but for their memory:
///
///   announce();  group.await_announcements();  learn();
///   for each window:  ... reduce tensors(), finish, await_ends ...;  empty();  fill() the next one, group.announce(), await_announcements()
///
/// Memory that the others cannot map is staged, a window after the other, each with an announcement and an end of its own: a worker fills its window
/// before it announces, and empties it after await_ends(), so what holds for buffers holds for windows. Whoever has nothing to stage learns from the
/// others' first announcement that there are windows, and cuts its batch into the same ones. Where nobody stages, there is one window, of everything.
///
/// Of a window everybody knows from the start which part is whose to reduce (WindowPlan), so nobody stages its own: that is read and written where it
/// lies. Of S bytes in place W workers each copy S (W - 1)/W in and as many out, in place of S and S.
///
/// Why the others' memory is not read with process_vm_readv instead, which saves the copy in: the kernel looks up and holds every page that it reads.
/// Measured with 2 workers on an EPYC, from 256 KiB to 64 MiB, that takes 1.6 to 6 times as long as this with pages of 4 KiB, 1.0 to 3 times with
/// huge ones; on a Xeon, from 2 MiB on, 0.95 to 2.2 and 0.7 to 1.2 times (bench/results/foreign-memory.md). Why the owner does not leave one result in its own window for all to fetch: lines that another worker has only read cost some 10 times
/// as much to write again.
///
/// Kept from use to use, with its memory.
class SharedBatch {
 public:
  /// Copies run on all cores of this worker unless `is_single_threaded`.
  SharedBatch(SharedMemoryGroup& group, bool is_single_threaded);

  /// What the announcement of so many buffers takes of a slot.
  [[nodiscard]] static std::size_t slot_bytes(std::size_t num_buffers);

  /// Says where this worker's buffers lie, with the first window filled if there is anything to stage.
  void announce(const CollectiveRequest& request, std::span<const CollectiveValue> values,
                const GroupOperationInfo& info);
  /// Everybody's buffers, in this process's addresses; and whether there are windows.
  void learn(const CollectiveRequest& request, std::span<const CollectiveValue> values);
  [[nodiscard]] std::size_t num_windows() const { return windows_.size(); }
  /// Of one replica's values in a window.
  [[nodiscard]] std::size_t window_bytes(std::span<const CollectiveValue> values,
                                         std::size_t window) const;

  /// Puts this worker's inputs where the others find them.
  void fill(const CollectiveRequest& request, std::span<const CollectiveValue> values,
            std::size_t window);
  struct WindowTensors {
    std::span<const DirectReduceTensor> tensors{};
    std::size_t num_first = 0;  ///< tensors of the first `num_first_values` values
    DirectReduceShare share{};  ///< of these tensors, that is this worker's to reduce
  };
  /// All workers' buffers of what this worker has to do with in a window, valid until the next call.
  [[nodiscard]] WindowTensors tensors(const CollectiveRequest& request,
                                      std::span<const CollectiveValue> values, std::size_t window,
                                      std::size_t num_first_values);
  /// Takes this worker's results out.
  void empty(std::span<const CollectiveValue> values, std::size_t window);

  /// Windows that have been emptied: of them results are written.
  [[nodiscard]] std::size_t num_emptied() const { return num_emptied_; }
  /// Another operation of this process may fail while this one runs, and move memory of this one out of the others' reach, where it lies in the same
  /// segment: what they write to it is lost then, and what was staged after that is not seen by them. To be called before an announcement and
  /// after an end.
  ///
  /// Errors   AbortedError: so it was.
  void require_unmoved(const CollectiveRequest& request) const;
  /// Whose memory the others may touch.
  [[nodiscard]] std::span<const Tensor> announced() const { return announced_; }
  /// Lets go of the caller's tensors.
  void clear() { announced_.clear(); }

 private:
  /// How a batch is announced: first this,
  struct BatchHead {
    SharedLocation staging;
    std::uint64_t stages = 0;  // whether any buffer is staged
  };
  /// then one of these for each buffer.
  struct BufferHead {
    static constexpr std::uint32_t kNone = 0xffffffff;
    SharedLocation location;  // nowhere, if staged
    std::uint32_t is_staged = 0;
    std::uint32_t same_as = kNone;  // a staged output: where which staged input of its value is
  };
  struct Buffer {
    std::byte* begin = nullptr;  // of the whole; another worker's that is staged: null
    BufferHead head;
  };
  /// Between a buffer and where it is staged.
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t size_bytes = 0;
  };

  [[nodiscard]] Buffer describe(const Tensor& tensor);
  static void reuse_staged_inputs(const CollectiveValue& value, std::span<Buffer> buffers);
  void learn_buffers_of(std::size_t rank, const CollectiveRequest& request,
                        std::span<const CollectiveValue> values);
  void place(std::size_t of_rank, const CollectiveRequest& request,
             std::span<const CollectiveValue> values, std::size_t window);
  /// Whether `of_rank` stages a slice of a buffer: its own part lies where the whole does.
  [[nodiscard]] static bool is_staged(const Buffer& buffer, const WindowSlice& slice,
                                      std::size_t of_rank) {
    return buffer.head.is_staged != 0 && slice.owner != of_rank;
  }
  void run_copies();
  [[nodiscard]] std::size_t own_rank() const { return static_cast<std::size_t>(group_.rank()); }

  SharedMemoryGroup& group_;
  bool is_single_threaded_;
  std::vector<Tensor> announced_;
  std::vector<std::vector<Buffer>> buffers_;  // [rank][buffer]; this worker's from the start
  std::vector<std::size_t> first_buffers_;    // of each value
  std::vector<BatchHead> heads_;              // by rank
  std::vector<SlotReader> slots_;
  WindowPlan windows_;
  bool any_stages_ = false;  // then slices are their owners' to reduce
  std::optional<Tensor> own_staging_;
  std::vector<std::byte*> staging_;              // by rank
  std::vector<std::vector<std::byte*>> places_;  // [rank][buffer of the window's slices]
  std::vector<Copy> copies_;
  std::size_t num_emptied_ = 0;
  std::uint64_t num_moves_ = 0;  // when memory was located
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<DirectReduceTensor> tensors_;
};

}  // namespace crossdevice::detail
