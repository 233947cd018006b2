// SPDX-License-Identifier: Apache-2.0
/// Runs schedules over a transport, whatever carries its bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "crossdevice/collective/direct_reduce.h"
#include "crossdevice/collective/schedule_program.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/export.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// One row of elements and what this rank does with it.
struct ScheduleJob {
  const ScheduleProgram* program = nullptr;  ///< of participant transport.rank()
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  const std::byte* input = nullptr;
  std::byte* output =
      nullptr;  ///< the row; exactly the input, or no overlap with it; null: where the program only sends
  /// Which element of the row `input` and `output` begin with: where the program touches only those that follow it.
  std::size_t first_element = 0;
  /// Whether elements that no task writes become the input's too; else they are unspecified.
  bool keeps_unwritten = true;
  /// MEAN: how many values the sum is divided by.
  double divisor = 1;
};

/// Memory   inputs and outputs are sent and received where they lie. What is combined comes through buffers, as few pieces as keep
///          the transport busy (kBufferBytes, or what one combination needs). They and everything else are kept: batches not larger than ones before
///          allocate nothing.
/// Order    jobs run side by side as far as their messages allow; to and from each peer in the order of the jobs.
/// Arithmetic  float16, bfloat16 and float8 are rounded after each combination. MEAN (not of integers) divides in the combination of everybody's
///          inputs where there is one, else where the sum is complete.
/// Errors   as Transport. Then outputs are unspecified; nobody touches any memory of the jobs any more.
/// Threads  one at a time; combines on the calling thread.
class CROSSDEVICE_EXPORT ScheduleExecutor {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

  explicit ScheduleExecutor(Transport& transport);
  ~ScheduleExecutor();
  ScheduleExecutor(const ScheduleExecutor&) = delete;
  ScheduleExecutor& operator=(const ScheduleExecutor&) = delete;

  /// The members run the same jobs, each its own programs of the same schedules. Every peer of a program is connected, and the transport's
  /// operation has begun. `observer` hears of each job that is complete.
  void run(std::span<const ScheduleJob> jobs, const Deadline& deadline,
           OperationObserver* observer = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice
