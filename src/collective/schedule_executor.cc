// SPDX-License-Identifier: Apache-2.0
/// Why nobody waits for ever. Of all steps of all jobs that are not finished anywhere, take the first. Each of its participants has finished
/// everything before it, so whatever the step's tasks depend on is done. Its sends are at the front of their queues. Its receives are posted in
/// the order of tasks, so only receives before it can hold buffers, and those are finished and have given them back; there are as many
/// buffers as one combination needs. So the step's messages move, and it finishes.
#include "crossdevice/collective/schedule_executor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "crossdevice/device/reduce_kernel.h"

#include "collective/detail/scratch_memory.h"
#include "collective/detail/timed_copy.h"

namespace crossdevice {
namespace {

constexpr std::uint32_t kNoBuffer = ScheduleProgram::kOwn;
constexpr std::size_t kBufferAlignment = 256;

constexpr std::size_t aligned(std::size_t size_bytes) {
  return (size_bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

struct ScheduleExecutor::State {
  /// What changes of a task while it waits and runs. Tasks of all jobs are numbered one after the other.
  struct TaskState {
    std::uint32_t job = 0;
    std::uint32_t dependencies_left = 0;
    std::uint32_t buffer =
        kNoBuffer;  // RECEIVE of an operand, from posting until it has been combined
  };
  struct JobState {
    std::uint32_t first_task = 0;
    std::size_t tasks_left = 0;
  };
  /// Sends to one peer, in order.
  struct SendQueue {
    std::vector<std::uint32_t> tasks;
    std::size_t next = 0;
  };

  explicit State(Transport& over)
      : transport(over), send_queues(static_cast<std::size_t>(over.num_ranks())) {}

  Transport& transport;
  std::span<const ScheduleJob> jobs;
  OperationObserver* observer = nullptr;

  std::vector<JobState> job_states;
  std::vector<TaskState> tasks;
  std::unique_ptr<Transfer[]> transfers;  // of each task
  std::size_t num_transfers = 0;
  std::vector<SendQueue> send_queues;  // by peer
  std::vector<std::size_t> peers;      // that have a queue
  std::vector<std::uint32_t> receives;
  std::size_t next_receive = 0;
  std::vector<std::uint32_t> ready;  // combinations
  std::size_t next_ready = 0;
  std::size_t num_unfinished = 0;

  detail::ScratchMemory memory;  // of the buffers
  std::size_t buffer_size = 0;
  std::vector<std::uint32_t> free_buffers;
  std::vector<const void*> operands;

  void prepare();
  void reserve_buffers(std::size_t count, std::size_t size_bytes);
  void add_tasks(std::size_t job);
  void start_rows(const Deadline& deadline);
  bool post_sends();
  bool post_receives();
  bool take_completed();
  bool run_ready();
  void combine(std::uint32_t index);
  void complete(std::uint32_t index);
  void complete_job(std::size_t job);
  [[nodiscard]] bool has_own_work() const;

  [[nodiscard]] const ScheduleProgram& program_of(std::uint32_t index) const {
    return *jobs[tasks[index].job].program;
  }
  [[nodiscard]] const ProgramTask& task(std::uint32_t index) const {
    return program_of(index).tasks[index - job_states[tasks[index].job].first_task];
  }
  [[nodiscard]] std::byte* buffer(std::uint32_t index) const {
    return memory.begin() + index * buffer_size;
  }
  [[nodiscard]] static std::size_t offset(const ScheduleJob& job, const Interval& range) {
    return (range.begin - job.first_element) * size_in_bytes(job.dtype);
  }
  [[nodiscard]] static std::size_t size(const ScheduleJob& job, const Interval& range) {
    return range.count * size_in_bytes(job.dtype);
  }
};

void ScheduleExecutor::State::reserve_buffers(std::size_t count, std::size_t size_bytes) {
  buffer_size = aligned(size_bytes);
  count = std::max(count, std::min(receives.size(), kBufferBytes / buffer_size));
  memory.reserve(count * buffer_size);
  free_buffers.clear();
  for (std::size_t i = count; i > 0; --i) {
    free_buffers.push_back(static_cast<std::uint32_t>(i - 1));
  }
}

void ScheduleExecutor::State::prepare() {
  job_states.clear();
  tasks.clear();
  receives.clear();
  next_receive = 0;
  ready.clear();
  next_ready = 0;
  for (const std::size_t peer : peers) {
    send_queues[peer].tasks.clear();
    send_queues[peer].next = 0;
  }
  peers.clear();
  std::size_t num_buffers = 0;
  std::size_t piece_bytes = 0;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    const ScheduleProgram& program = *jobs[job].program;
    num_buffers = std::max(num_buffers, program.max_buffers);
    piece_bytes =
        std::max(piece_bytes, program.max_piece_elements * size_in_bytes(jobs[job].dtype));
    add_tasks(job);
  }
  num_unfinished = tasks.size();
  if (num_buffers > 0 && piece_bytes > 0) reserve_buffers(num_buffers, piece_bytes);
  if (num_transfers < tasks.size()) {
    transfers = std::make_unique<Transfer[]>(tasks.size());
    num_transfers = tasks.size();
  }
}

void ScheduleExecutor::State::add_tasks(std::size_t job) {
  const ScheduleProgram& program = *jobs[job].program;
  const auto first = static_cast<std::uint32_t>(tasks.size());
  job_states.push_back({.first_task = first, .tasks_left = program.tasks.size()});
  tasks.reserve(tasks.size() + program.tasks.size());
  for (const ProgramTask& task : program.tasks) {
    const auto index = static_cast<std::uint32_t>(tasks.size());
    tasks.push_back({.job = static_cast<std::uint32_t>(job),
                     .dependencies_left = task.num_dependencies,
                     .buffer = kNoBuffer});
    if (task.kind == ProgramTask::Kind::RECEIVE) receives.push_back(index);
    // A reduction of a participant's elements alone waits for nobody.
    if (task.kind == ProgramTask::Kind::COMBINE && task.num_dependencies == 0) {
      ready.push_back(index);
    }
    if (task.kind != ProgramTask::Kind::SEND) continue;
    SendQueue& queue = send_queues[task.peer];
    if (queue.tasks.empty()) peers.push_back(task.peer);
    queue.tasks.push_back(index);
  }
}

/// What the rows hold before the first task.
void ScheduleExecutor::State::start_rows(const Deadline& deadline) {
  for (std::size_t index = 0; index < jobs.size(); ++index) {
    const ScheduleJob& job = jobs[index];
    const auto copy = [&](const Interval& range) {
      detail::copy_in_time(transport, job.output + offset(job, range),
                           job.input + offset(job, range), size(job, range), deadline);
    };
    if (job.input != job.output && job.output != nullptr) {
      if (job.program->starts_with_copy && job.program->num_elements > 0) {
        copy({.begin = 0, .count = job.program->num_elements});
      } else if (job.keeps_unwritten) {
        for (const Interval& range : job.program->unwritten) copy(range);
      }
    }
    if (job_states[index].tasks_left == 0) complete_job(index);
  }
}

bool ScheduleExecutor::State::post_sends() {
  bool any = false;
  for (const std::size_t peer : peers) {
    SendQueue& queue = send_queues[peer];
    for (; queue.next < queue.tasks.size(); ++queue.next) {
      const std::uint32_t index = queue.tasks[queue.next];
      if (tasks[index].dependencies_left > 0) break;
      const ScheduleJob& job = jobs[tasks[index].job];
      const ProgramTask& send = task(index);
      const std::byte* const row = send.reads_input ? job.input : job.output;
      Transfer& transfer = transfers[index];
      transfer.tag = index;
      transport.send(static_cast<int>(peer), {row + offset(job, send.range), size(job, send.range)},
                     transfer);
      any = true;
    }
  }
  return any;
}

bool ScheduleExecutor::State::post_receives() {
  bool any = false;
  for (; next_receive < receives.size(); ++next_receive) {
    const std::uint32_t index = receives[next_receive];
    if (tasks[index].dependencies_left > 0) break;
    const ScheduleJob& job = jobs[tasks[index].job];
    const ProgramTask& receive = task(index);
    std::byte* into = job.output + offset(job, receive.range);
    if (receive.is_operand) {
      if (free_buffers.empty()) break;
      tasks[index].buffer = free_buffers.back();
      free_buffers.pop_back();
      into = buffer(tasks[index].buffer);
    }
    Transfer& transfer = transfers[index];
    transfer.tag = index;
    transport.receive(static_cast<int>(receive.peer), {into, size(job, receive.range)}, transfer);
    any = true;
  }
  return any;
}

bool ScheduleExecutor::State::take_completed() {
  bool any = false;
  while (Transfer* const transfer = transport.take_completed()) {
    complete(static_cast<std::uint32_t>(transfer->tag));
    any = true;
  }
  return any;
}

/// Runs one combination, so that the transport is looked after in between.
bool ScheduleExecutor::State::run_ready() {
  if (next_ready == ready.size()) return false;
  combine(ready[next_ready++]);
  if (next_ready == ready.size()) {
    ready.clear();
    next_ready = 0;
  }
  return true;
}

void ScheduleExecutor::State::combine(std::uint32_t index) {
  const ScheduleJob& job = jobs[tasks[index].job];
  const ScheduleProgram& program = *job.program;
  const ProgramTask& combination = task(index);
  const std::uint32_t first_task = job_states[tasks[index].job].first_task;
  const std::size_t begin = offset(job, combination.range);
  std::byte* const output = job.output + begin;
  operands.clear();
  for (std::uint32_t o = 0; o < combination.num_operands; ++o) {
    const std::uint32_t operand = program.operands[combination.first_operand + o];
    if (operand == ScheduleProgram::kOwn) {
      operands.push_back((combination.reads_input ? job.input : job.output) + begin);
    } else {
      operands.push_back(buffer(tasks[first_task + operand].buffer));
    }
  }
  void* const outputs[] = {output};
  const bool combines_all =
      combination.num_operands == program.num_participants && !program.divides_at_end;
  const bool is_mean_pass = job.op == ReduceOp::MEAN && combines_all &&
                            job.divisor == static_cast<double>(operands.size());
  const ReduceOp pass_op = job.op == ReduceOp::MEAN && !is_mean_pass ? ReduceOp::SUM : job.op;
  const ReducePass pass{.op = pass_op,
                        .dtype = job.dtype,
                        .inputs = operands,
                        .outputs = outputs,
                        .first_group = 0,
                        .stores = StoreMode::CACHED};
  find_reduce_kernel(pass_op, job.dtype)(pass, 0, combination.range.count);
  if (job.op == ReduceOp::MEAN && !is_mean_pass && combination.is_complete &&
      !program.divides_at_end) {
    divide_elements(job.dtype, output, combination.range.count, job.divisor);
  }
  for (std::uint32_t o = 0; o < combination.num_operands; ++o) {
    const std::uint32_t operand = program.operands[combination.first_operand + o];
    if (operand == ScheduleProgram::kOwn) continue;
    free_buffers.push_back(tasks[first_task + operand].buffer);
  }
  complete(index);
}

void ScheduleExecutor::State::complete(std::uint32_t index) {
  const std::size_t job = tasks[index].job;
  const ScheduleProgram& program = program_of(index);
  const ProgramTask& done = task(index);
  const std::uint32_t first_task = job_states[job].first_task;
  for (std::uint32_t s = 0; s < done.num_successors; ++s) {
    const std::uint32_t successor = first_task + program.successors[done.first_successor + s];
    if (--tasks[successor].dependencies_left == 0 &&
        task(successor).kind == ProgramTask::Kind::COMBINE) {
      ready.push_back(successor);
    }
  }
  --num_unfinished;
  if (--job_states[job].tasks_left == 0) complete_job(job);
}

void ScheduleExecutor::State::complete_job(std::size_t index) {
  const ScheduleJob& job = jobs[index];
  const bool has_divided = job.program->num_participants > 1 && !job.program->divides_at_end;
  if (job.op == ReduceOp::MEAN && !has_divided && job.divisor != 1 && job.output != nullptr) {
    divide_elements(job.dtype, job.output, job.program->num_elements, job.divisor);
  }
  if (observer != nullptr) observer->tensor_completed(index);
}

/// Whether something could be done now without anybody else.
bool ScheduleExecutor::State::has_own_work() const {
  if (next_ready < ready.size()) return true;
  return std::any_of(peers.begin(), peers.end(), [this](std::size_t peer) {
    const SendQueue& queue = send_queues[peer];
    return queue.next < queue.tasks.size() && tasks[queue.tasks[queue.next]].dependencies_left == 0;
  });
}

ScheduleExecutor::ScheduleExecutor(Transport& transport)
    : state_(std::make_unique<State>(transport)) {}
ScheduleExecutor::~ScheduleExecutor() = default;

void ScheduleExecutor::run(std::span<const ScheduleJob> jobs, const Deadline& deadline,
                           OperationObserver* observer) {
  State& state = *state_;
  state.jobs = jobs;
  state.observer = observer;
  state.prepare();
  state.start_rows(deadline);
  while (state.num_unfinished > 0) {
    // Who has never to wait is in time all the same. Who can only wait does so below, which names those that it waits for.
    if (deadline.has_passed() && state.has_own_work()) state.transport.require_time_left(deadline);
    // All of them each time: what one finishes makes others possible.
    const bool sent = state.post_sends();
    const bool received = state.post_receives();
    if (state.run_ready()) {
      state.transport.poll();
    } else if (!state.take_completed() && !sent && !received) {
      state.transport.wait(deadline);
      continue;
    }
    state.take_completed();
  }
  state.jobs = {};
}

}  // namespace crossdevice
