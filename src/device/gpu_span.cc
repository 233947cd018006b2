// SPDX-License-Identifier: Apache-2.0
/// How a GPU's clock becomes the host's. CUDA tells the time between two events of a device. An event whose moment the host has seen come - it has recorded it on an
/// idle stream and waited for it, and takes the quickest of some tries - is the device's anchor, from which other moments are counted, later and earlier ones.
/// A newer anchor differs from the one before by what the clocks have drifted, some microseconds: so a bar may seem to begin before what encloses it, which is put
/// right when it is written.
///
/// Threads. Who enqueues pushes finished spans under `incoming_mutex_`. Whoever writes the timeline calls collect(), which takes them and asks CUDA under
/// `collect_mutex_`; so nobody who enqueues waits for CUDA here.
#include "crossdevice/device/gpu_span.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/trace_clock.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/gpu_event_pool.h"

namespace crossdevice::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxBars = 16384;
constexpr std::chrono::milliseconds kAnchorAge{250};
constexpr int kAnchorTries = 5;
/// An idle stream's event comes in some microseconds, unless the GPU's queues are blocked.
constexpr std::chrono::milliseconds kAnchorTime{2};
constexpr std::chrono::seconds kGrace{1};

/// A stream's bars that have been written.
struct Track {
  TraceTracks name;
  std::int64_t operation_end_ns = 0;  // of the last one
  std::int64_t part_end_ns = 0;       // of the last one
  std::int64_t parts_begin_ns =
      std::numeric_limits<std::int64_t>::max();  // of the first since the last operation

  /// As it may stand behind and around those before.
  void place(GpuSpanKind kind, std::int64_t& begin_ns, std::int64_t& end_ns) {
    if (kind == GpuSpanKind::PART) {
      begin_ns = std::max({begin_ns, operation_end_ns, part_end_ns});
      end_ns = std::max(begin_ns, end_ns);
      part_end_ns = end_ns;
      parts_begin_ns = std::min(parts_begin_ns, begin_ns);
      return;
    }
    begin_ns = std::max(std::min(begin_ns, parts_begin_ns), operation_end_ns);
    end_ns = std::max({begin_ns, end_ns, part_end_ns});
    operation_end_ns = end_ns;
    parts_begin_ns = std::numeric_limits<std::int64_t>::max();
  }
};

struct Bar {
  const char* name;
  GpuSpanKind kind;
  TraceArguments arguments;
  GpuSpan::Mark mark;
  Track* track;
};

/// One GPU's.
struct DeviceClock {
  CudaStream stream = nullptr;
  CudaEvent anchor = nullptr;  // null: none yet
  std::int64_t at_ns = 0;      // when it came, by the host's clock
  Clock::time_point taken{};
};

constinit std::atomic<bool> are_there_bars{false};

/// They may be recorded again before their moments have come: what waits for those waits for those.
void give_back(const GpuSpan::Mark& mark) noexcept {
  for (const CudaEvent event : {mark.begin, mark.end}) {
    if (event != nullptr) mark.device->timed_events().give_back(event);
  }
}

class GpuBars {
 public:
  static GpuBars& get() {
    static GpuBars& one = *new GpuBars;  // never destroyed
    return one;
  }

  void push(const char* name, GpuSpanKind kind, const TraceArguments& arguments,
            const GpuSpan::Mark& mark);
  [[nodiscard]] std::vector<TraceEvent> collect();
  void await_end();

 private:
  GpuBars();
  struct CollectingScope {
    explicit CollectingScope(GpuBars& of) : bars(of) { set(true); }
    ~CollectingScope() {
      set(false);
      bars.collected_.notify_all();
    }
    CollectingScope(const CollectingScope&) = delete;
    CollectingScope& operator=(const CollectingScope&) = delete;
    void set(bool is_collecting) const {
      const std::lock_guard lock(bars.incoming_mutex_);
      bars.is_collecting_ = is_collecting;
    }
    GpuBars& bars;
  };
  enum class Fate : std::uint8_t { NOT_YET, KNOWN, LOST };
  [[nodiscard]] Fate look_at(const Bar& bar, std::vector<TraceEvent>& known);
  void drop(const Bar& bar);
  [[nodiscard]] std::optional<std::int64_t> time_of(GpuDevice& device, const DeviceClock& clock,
                                                    CudaEvent event);
  void take_anchor(GpuDevice& device, DeviceClock& clock);

  std::mutex incoming_mutex_;  // guards the following
  std::vector<Bar> incoming_;
  std::map<std::pair<GpuDevice*, CudaStream>, std::unique_ptr<Track>> tracks_;
  std::map<GpuDevice*, int> num_streams_;
  std::size_t num_bars_ = 0;
  bool is_collecting_ = false;
  std::condition_variable collected_;

  std::mutex collect_mutex_;  // guards the following, and tracks' times; taken before the other
  std::deque<Bar> waiting_;
  std::map<GpuDevice*, DeviceClock> clocks_;
};

std::vector<TraceEvent> late_bars() noexcept {
  try {
    return GpuBars::get().collect();
  } catch (...) {
    return {};  // a timeline that cannot be must not end the program
  }
}

GpuBars::GpuBars() {
  set_late_bars(&late_bars);
  are_there_bars = true;
}

void GpuBars::push(const char* name, GpuSpanKind kind, const TraceArguments& arguments,
                   const GpuSpan::Mark& mark) {
  const std::lock_guard lock(incoming_mutex_);
  if (num_bars_ == kMaxBars) return give_back(mark);
  std::unique_ptr<Track>& track = tracks_[{mark.device, mark.stream}];
  if (track == nullptr) {
    track = std::make_unique<Track>();
    track->name.names.push_back(fmt::format("CUDA device {}, stream {}", mark.device->ordinal(),
                                            ++num_streams_[mark.device]));
  }
  incoming_.push_back({name, kind, arguments, mark, track.get()});
  ++num_bars_;
}

void GpuBars::drop(const Bar& bar) {
  give_back(bar.mark);
  const std::lock_guard lock(incoming_mutex_);
  --num_bars_;
}

std::vector<TraceEvent> GpuBars::collect() {
  const std::lock_guard collecting(collect_mutex_);
  std::vector<TraceEvent> known;
  const CollectingScope scope(*this);
  if (are_gpus_closed()) return known;  // not before: see await_end_of_gpu_bars()
  {
    const std::lock_guard lock(incoming_mutex_);
    waiting_.insert(waiting_.end(), incoming_.begin(), incoming_.end());
    incoming_.clear();
  }
  if (waiting_.empty()) return known;
  const BesideCaptures beside(waiting_.front().mark.device->cuda());
  std::set<GpuDevice*> devices;
  for (const Bar& bar : waiting_) devices.insert(bar.mark.device);
  for (GpuDevice* const device : devices) {
    DeviceClock& clock = clocks_[device];
    if (clock.anchor == nullptr || Clock::now() - clock.taken >= kAnchorAge) {
      take_anchor(*device, clock);
    }
  }
  std::set<const Track*> unfinished;  // what stands behind an unfinished bar of a stream is, too
  for (std::size_t num_left = waiting_.size(); num_left > 0; --num_left) {
    const Bar bar = waiting_.front();
    waiting_.pop_front();
    const Fate fate = unfinished.contains(bar.track) ? Fate::NOT_YET : look_at(bar, known);
    if (fate == Fate::NOT_YET) {
      unfinished.insert(bar.track);
      waiting_.push_back(bar);
    } else {
      drop(bar);
    }
  }
  return known;
}

GpuBars::Fate GpuBars::look_at(const Bar& bar, std::vector<TraceEvent>& known) try {
  GpuDevice& device = *bar.mark.device;
  const DeviceClock& clock = clocks_[&device];
  if (clock.anchor == nullptr) return Fate::NOT_YET;
  const CurrentCudaDevice current(device.cuda(), device.ordinal());
  const CudaStatus status = device.cuda().event_query(bar.mark.end);
  if (status == CudaStatus::NOT_READY) return Fate::NOT_YET;
  if (status != CudaStatus::SUCCESS) return Fate::LOST;
  std::optional<std::int64_t> begin = time_of(device, clock, bar.mark.begin);
  std::optional<std::int64_t> end = time_of(device, clock, bar.mark.end);
  if (!begin.has_value() || !end.has_value()) return Fate::LOST;
  bar.track->place(bar.kind, *begin, *end);
  TraceArguments arguments = bar.arguments;
  arguments.tracks = &bar.track->name;
  known.push_back({.name = bar.name,
                   .category = "gpu",
                   .begin_ns = *begin,
                   .end_ns = *end,
                   .arguments = arguments});
  return Fate::KNOWN;
} catch (const std::exception&) {
  return Fate::LOST;  // CUDA has failed, or there is no memory
}

std::optional<std::int64_t> GpuBars::time_of(GpuDevice& device, const DeviceClock& clock,
                                             CudaEvent event) {
  float milliseconds = 0;
  const CudaStatus status = device.cuda().event_elapsed(&milliseconds, clock.anchor, event);
  if (status != CudaStatus::SUCCESS) return std::nullopt;
  return clock.at_ns + std::llround(static_cast<double>(milliseconds) * 1e6);
}

/// Leaves the old one where the GPU does not answer.
void GpuBars::take_anchor(GpuDevice& device, DeviceClock& clock) try {
  CudaApi& cuda = device.cuda();
  const CurrentCudaDevice current(cuda, device.ordinal());
  if (clock.stream == nullptr && cuda.stream_create(&clock.stream) != CudaStatus::SUCCESS) return;
  CudaEvent best = nullptr;
  std::int64_t at_ns = 0;
  std::int64_t shortest_ns = std::numeric_limits<std::int64_t>::max();
  CudaStatus status = CudaStatus::SUCCESS;
  for (int i = 0; i < kAnchorTries && status == CudaStatus::SUCCESS; ++i) {
    CudaEvent event = device.timed_events().take(cuda);
    const std::int64_t before_ns = trace_clock_ns();
    const Clock::time_point latest = Clock::now() + kAnchorTime;
    status = cuda.event_record(event, clock.stream);
    if (status == CudaStatus::SUCCESS) status = cuda.event_query(event);
    while (status == CudaStatus::NOT_READY && Clock::now() < latest) {
      status = cuda.event_query(event);
    }
    const std::int64_t took_ns = trace_clock_ns() - before_ns;
    if (status == CudaStatus::SUCCESS && took_ns < shortest_ns) {
      std::swap(best, event);
      at_ns = before_ns + took_ns / 2;
      shortest_ns = took_ns;
    }
    if (event != nullptr) device.timed_events().give_back(event);
  }
  if (best == nullptr) return;
  if (clock.anchor != nullptr) device.timed_events().give_back(clock.anchor);
  clock.anchor = best;
  clock.at_ns = at_ns;
  clock.taken = Clock::now();
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  // CUDA has failed, or there is no memory.
}

void GpuBars::await_end() {
  std::unique_lock lock(incoming_mutex_);
  (void)collected_.wait_for(lock, kGrace, [this] { return !is_collecting_; });
}

}  // namespace

void await_end_of_gpu_bars() noexcept {
  if (is_forked_child() || !are_there_bars) return;
  try {
    GpuBars::get().await_end();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // No memory even for that.
  }
}

void GpuSpan::add(GpuDevice& device, CudaStream stream) noexcept {
  const std::size_t num_before = marks_.size();
  try {
    const bool has_begun = std::any_of(marks_.begin(), marks_.end(), [&](const Mark& mark) {
      return mark.device == &device && mark.stream == stream;
    });
    if (has_begun) return;
    const CurrentCudaDevice current(device.cuda(), device.ordinal());
    marks_.push_back({.device = &device, .stream = stream});
    marks_.back().begin = device.timed_events().take(device.cuda());
    marks_.back().end = device.timed_events().take(device.cuda());
    require_cuda(device.cuda(), device.cuda().event_record(marks_.back().begin, stream),
                 "cudaEventRecord");
  } catch (...) {  // no bar
    while (marks_.size() > num_before) {
      give_back(marks_.back());
      marks_.pop_back();
    }
  }
}

void GpuSpan::end_all(const char* name, const TraceArguments& arguments) noexcept {
  try {
    for (Mark& mark : marks_) {
      const CurrentCudaDevice current(mark.device->cuda(), mark.device->ordinal());
      require_cuda(mark.device->cuda(), mark.device->cuda().event_record(mark.end, mark.stream),
                   "cudaEventRecord");
      GpuBars::get().push(name, kind_, arguments, mark);
      mark.begin = mark.end = nullptr;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch)
    // No bar.
  }
}

GpuSpan::~GpuSpan() {
  for (const Mark& mark : marks_) give_back(mark);
}

}  // namespace crossdevice::detail
