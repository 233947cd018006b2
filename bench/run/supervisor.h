// SPDX-License-Identifier: Apache-2.0
/// Watches over the workers until the last one has ended.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "run/arguments.h"
#include "run/descriptor.h"
#include "run/janitor.h"
#include "run/line_prefixer.h"
#include "run/output_sink.h"
#include "run/remote_control.h"
#include "run/worker_process.h"

namespace crossdevice::run {

/// One thread, one poll(): signals come through a descriptor, so that nothing ever interrupts anything. The order of events in a turn does not
/// matter: each only looks at what is there.
///
///   running    workers live; their lines are passed on
///   stopping   one has failed where that ends the job, or SIGINT or SIGTERM has come, or our own reader or starter is gone: SIGTERM has been sent, SIGKILL follows
///              at the deadline
///   swept      every worker has been reaped, and what they left behind (they are our children then, PR_SET_CHILD_SUBREAPER) killed and reaped
///              too: nobody writes any more, so what the pipes still hold is all there will be
///
/// Threads  the process must have no other.
class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  /// Blocks the signals that it will forward; ignores SIGPIPE. The settings are those the workers start with.
  Supervisor(const Arguments& arguments, const Janitor& janitor);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts a worker. One that has failed meanwhile is noticed by run().
  ///
  /// Errors   CannotExecute, std::runtime_error.
  void start(WorkerSetting setting, int rank);
  /// Starts the remote shell to a host, which gets `job` and then signals' numbers on its standard input, and a 0 four times in the arguments' silence. It
  /// counts as one worker whose lines have their ranks already.
  ///
  /// Errors   as start().
  void start_remote(WorkerSetting setting, const std::string& host, std::string job);
  /// Signals' numbers come from `input` too; where it ends, or brings nothing for the arguments' silence, nobody is there any more to whom the job matters,
  /// and it stops.
  void listen(int input);
  /// Returns the exit code of the job: 0, the first failing worker's (where the others go on: if none ends well), or 141 where nobody reads our output.
  [[nodiscard]] int run();

 private:
  struct Stream {
    Descriptor pipe;
    LinePrefixer prefixer;
    OutputSink* sink;
  };
  struct Worker {
    pid_t pid = -1;
    std::string name{};  // "rank 3", "host b"
    bool is_running = true;
    bool is_told_to_kill = false;  // a remote one
    RemoteControl control{};       // open: a remote one
    std::vector<Stream> streams{};
  };

  void add(WorkerSetting setting, std::string name, const LinePrefixer& out,
           const LinePrefixer& err, std::string input);
  void wait_for_events();
  void read_signals();
  void read_input();
  void miss_the_input();
  void lose_the_input();
  void remind_hosts();
  void forward(int number);
  void reap();
  void ended(Worker& worker, int status);
  void begin_grace();
  void grace_is_over();
  void stop_the_rest();
  void await_the_rest();
  void speak_of_the_rest();
  void signal_all(int number);
  void sweep();
  void read_some(Stream& stream);
  void write_some(OutputSink& sink);
  [[nodiscard]] bool is_output_done() const;
  [[nodiscard]] int timeout_milliseconds() const;

  Clock::duration grace_;
  Clock::duration silence_;  // zero: any
  WhenOneFails when_one_fails_;
  RankPrefix rank_prefix_;
  const Janitor& janitor_;
  sigset_t inherited_mask_{};
  bool inherited_ignored_sigpipe_ = false;
  Descriptor signals_;
  int input_ = -1;  // -1: none, or it has ended
  OutputSink out_;
  OutputSink err_;
  std::vector<Worker> workers_;
  std::size_t num_running_ = 0;
  bool is_swept_ = false;
  bool is_stopping_ = false;
  bool is_interrupted_ = false;  // by a signal, so that workers' ends need no explanation
  bool has_killed_ = false;
  bool may_be_consequence_ =
      false;  // the exit code is that of a worker that another one's crash may have ended
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> speak_at_;   // of who is still waited for
  std::optional<Clock::time_point> remind_at_;  // other hosts that this one is there
  std::optional<Clock::time_point> miss_at_;    // input_
  std::optional<int> exit_code_;
  std::optional<int> first_failure_;  // of those that the others have survived
  bool has_one_ended_well_ = false;
};

}  // namespace crossdevice::run
