// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/host_gather.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::detail {
namespace {

/// One replica's share: `rows` runs of `run_bytes`, placed `stride_bytes` apart from `offset_bytes` on in the result.
struct Share {
  const char* source;
  std::size_t run_bytes;
  std::size_t offset_bytes;
};

/// A piece of work: runs [begin, end) of one share into one destination.
struct Piece {
  std::size_t share;
  std::size_t destination;
  std::size_t begin;
  std::size_t end;
};

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

// With the dimensions before `axis` flattened to `rows`, every replica holds `rows` contiguous runs, and a row of the result is the
// replicas' runs one after the other. Pieces write disjoint runs, so they need no order.
void host_gather(const PerReplica& value, std::size_t axis, const Mirrored& result,
                 ActiveOperation& active) {
  active.require_time_left();
  const Shape& first = value.values()[0].shape();
  std::size_t rows = 1;
  for (std::size_t d = 0; d < axis; ++d) rows *= static_cast<std::size_t>(first[d]);
  if (rows == 0 || result.values()[0].num_elements() == 0) return;

  std::vector<Share> shares;
  std::size_t row_bytes = 0;
  for (const Tensor& tensor : value.values()) {
    const std::size_t run_bytes = tensor.size_bytes() / rows;
    shares.push_back({static_cast<const char*>(tensor.data()), run_bytes, row_bytes});
    row_bytes += run_bytes;
  }
  std::vector<Piece> pieces;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (shares[s].run_bytes == 0) continue;
    const std::size_t runs = std::max<std::size_t>(1, kPieceBytes / shares[s].run_bytes);
    for (std::size_t destination = 0; destination < result.size(); ++destination) {
      for (std::size_t begin = 0; begin < rows; begin += runs) {
        pieces.push_back({s, destination, begin, std::min(rows, begin + runs)});
      }
    }
  }
  std::atomic<bool> ended{false};  // set by whichever piece notices; the pieces after it do nothing
  active.set_written();
  HostThreadPool::instance().run(pieces.size(), [&](std::size_t index) {
    if (ended.load(std::memory_order_relaxed)) return;
    if (active.deadline().has_passed() || active.stop_requested()) {
      ended.store(true, std::memory_order_relaxed);
      return;
    }
    const Piece& piece = pieces[index];
    const Share& share = shares[piece.share];
    char* target = static_cast<char*>(result.values()[piece.destination].data());
    for (std::size_t row = piece.begin; row < piece.end; ++row) {
      copy_bytes(target + row * row_bytes + share.offset_bytes,
                 share.source + row * share.run_bytes, share.run_bytes, StoreMode::CACHED);
    }
  });
  if (ended.load(std::memory_order_relaxed)) {
    active.require_time_left();
    active.throw_deadline_exceeded();
  }
}

}  // namespace crossdevice::detail
