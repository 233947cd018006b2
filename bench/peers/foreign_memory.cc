// SPDX-License-Identifier: Apache-2.0
/// What an all-reduce between two processes costs whose memory the other one cannot map, with nothing of the library: once each reads what it needs of the
/// other's with process_vm_readv, as MPI libraries do; once each copies what the other one needs into a window of shared memory, and out of it, as the
/// library does. In turns, in place, of float32, each process on a core of its own: foreign-memory
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers/system_failure.h"

namespace {

using crossdevice::bench::fail;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::size_t kLeastBytes = std::size_t{256} << 10U;
constexpr std::size_t kMostBytes = std::size_t{64} << 20U;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;
/// What is read, or lies in a window, at once: stays in the second-level cache.
constexpr std::size_t kPieceBytes = std::size_t{64} << 10U;
constexpr std::size_t kWindowPieces = 4;
constexpr int kRounds = 41;
constexpr std::chrono::seconds kPatience{30};

std::byte* map(std::size_t bytes, int flags) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return static_cast<std::byte*>(memory);
}

/// What one process says to the other; lines of their own.
struct Said {
  alignas(64) std::atomic<std::uint64_t> has_come{0};
  alignas(64) std::atomic<std::uint64_t> filled{0};  // pieces, since the beginning
  alignas(64) std::atomic<std::uint64_t> emptied{0};
  alignas(64) std::byte* buffer = nullptr;
  pid_t pid = 0;
};
struct Shared {
  Said said[2];
  alignas(64) std::byte windows[2][kWindowPieces][kPieceBytes];
};

void await(const std::atomic<std::uint64_t>& count, std::uint64_t at_least) {
  const Clock::time_point until = Clock::now() + kPatience;
  for (std::uint64_t looks = 1; count.load(std::memory_order_acquire) < at_least; ++looks) {
    if (looks % 4096 == 0 && Clock::now() > until) throw std::runtime_error("the other is gone");
  }
}

/// Bytes [offset, offset + count) of a buffer.
struct Piece {
  std::size_t offset;
  std::size_t count;
};

void add(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const sums = reinterpret_cast<float*>(to);
  const auto* const others = reinterpret_cast<const float*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) sums[i] += others[i];
}

class Process {
 public:
  Process(Shared& shared, int rank, bool is_huge)
      : shared_(shared), rank_(rank), mine_(shared.said[rank]), others_(shared.said[1 - rank]) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<std::size_t>(rank), &cores);
    (void)::sched_setaffinity(0, sizeof cores, &cores);  // a machine may have other cores
    (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    std::byte* const memory = map(kMostBytes + kHugePageBytes, MAP_PRIVATE);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    buffer_ = memory + (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    (void)::madvise(buffer_, kMostBytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(buffer_, 0, kMostBytes);
    mine_.buffer = buffer_;
    mine_.pid = ::getpid();
    meet();
  }

  /// How long it took, of values that were written just before.
  template <class Method>
  double time(std::size_t bytes, float value, const Method& method) {
    const std::span<float> values(reinterpret_cast<float*>(buffer_), bytes / sizeof(float));
    std::fill(values.begin(), values.end(), value + static_cast<float>(rank_));
    meet();
    const Clock::time_point start = Clock::now();
    method(bytes);
    meet();
    const double took = Microseconds(Clock::now() - start).count();
    const bool is_right = std::all_of(values.begin(), values.end(),
                                      [&](float each) { return each == 2 * value + 1; });
    if (!is_right) throw std::logic_error("wrong sums");
    return took;
  }

  void read(std::size_t bytes) {
    const std::size_t half = bytes / 2;
    alignas(64) static std::byte piece[kPieceBytes];
    for (std::size_t at = 0; at < half; at += kPieceBytes) {
      const std::size_t offset = half * static_cast<std::size_t>(rank_) + at;
      const std::size_t count = std::min(kPieceBytes, half - at);
      fetch(piece, {offset, count});
      add(buffer_ + offset, piece, count);
    }
    meet();
    const std::size_t offset = half * static_cast<std::size_t>(1 - rank_);
    fetch(buffer_ + offset, {offset, half});
  }

  void stage(std::size_t bytes) {
    const std::size_t half = bytes / 2;
    std::byte* const own = buffer_ + half * static_cast<std::size_t>(rank_);
    std::byte* const to_give = buffer_ + half * static_cast<std::size_t>(1 - rank_);
    for (std::size_t at = 0; at < half; at += kPieceBytes) {
      const std::size_t count = std::min(kPieceBytes, half - at);
      exchange(to_give + at, count, [&](std::byte* window) { add(own + at, window, count); });
      exchange(own + at, count,
               [&](std::byte* window) { std::memcpy(to_give + at, window, count); });
    }
  }

 private:
  void meet() {
    mine_.has_come.store(++meetings_, std::memory_order_release);
    await(others_.has_come, meetings_);
  }

  void fetch(std::byte* to, Piece piece) {
    for (std::size_t done = 0; done < piece.count;) {
      const iovec local{to + done, piece.count - done};
      const iovec remote{others_.buffer + piece.offset + done, piece.count - done};
      const ssize_t read = ::process_vm_readv(others_.pid, &local, 1, &remote, 1, 0);
      if (read <= 0) fail("process_vm_readv");
      done += static_cast<std::size_t>(read);
    }
  }

  /// Gives a piece, and takes the other one's.
  template <class Take>
  void exchange(const std::byte* given, std::size_t count, const Take& take) {
    const std::size_t place = pieces_ % kWindowPieces;
    if (pieces_ >= kWindowPieces) await(others_.emptied, pieces_ - kWindowPieces + 1);
    std::memcpy(shared_.windows[rank_][place], given, count);
    ++pieces_;
    mine_.filled.store(pieces_, std::memory_order_release);
    await(others_.filled, pieces_);
    take(shared_.windows[1 - rank_][place]);
    mine_.emptied.store(pieces_, std::memory_order_release);
  }

  Shared& shared_;
  const int rank_;
  Said& mine_;
  Said& others_;
  std::byte* buffer_ = nullptr;
  std::uint64_t meetings_ = 0;
  std::uint64_t pieces_ = 0;
};

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

void measure(Shared& shared, int rank, bool is_huge) {
  Process process(shared, rank, is_huge);
  if (rank == 0)
    std::printf("| bytes | read (us) | staged (us) | read / staged |\n|---|---:|---:|---:|\n");
  for (std::size_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 2) {
    std::vector<double> reads;
    std::vector<double> stagings;
    std::vector<double> ratios;
    for (int round = 0; round < kRounds; ++round) {
      const auto value = static_cast<float>(round);
      reads.push_back(process.time(bytes, value, [&](std::size_t n) { process.read(n); }));
      stagings.push_back(process.time(bytes, value, [&](std::size_t n) { process.stage(n); }));
      ratios.push_back(reads.back() / stagings.back());
    }
    if (rank != 0) continue;
    const double read = median(reads);
    const double staged = median(stagings);
    std::printf("| %zu K | %.1f | %.1f | %.2f |\n", bytes >> 10U, read, staged, median(ratios));
  }
}

/// Both processes of one kind of pages.
void measure_apart(bool is_huge) {
  auto& shared = *new (map(sizeof(Shared), MAP_SHARED)) Shared;
  std::printf("\n%s pages\n\n", is_huge ? "huge" : "4 KiB");
  (void)std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    try {
      measure(shared, 1, is_huge);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank 1: %s\n", error.what());
      ::_exit(1);
    }
  }
  measure(shared, 0, is_huge);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("rank 1 failed");
}

}  // namespace

int main() {
  try {
    measure_apart(false);
    measure_apart(true);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "foreign-memory: %s\n", error.what());
    return 1;
  }
  return 0;
}
