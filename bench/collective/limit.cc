// SPDX-License-Identifier: Apache-2.0
/// Runs the limits' loops over a case's buffers, on the library's threads.
#include "collective/limit.h"

#include <algorithm>

#include "crossdevice/device/host_thread_pool.h"

namespace crossdevice::bench {

namespace {

/// Threads take pieces of this size in turn, so that one that is interrupted does not hold up the others.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10U;

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

}  // namespace

Limit::Limit(const Case& test_case, const CaseBuffers& buffers, Placement placement,
             LimitThreads threads)
    : inputs_of_owner_(test_case.devices.size()), threads_(threads) {
  struct Target {
    std::byte* data;
    std::size_t size_bytes;
  };
  std::vector<Target> targets;
  for (const PerReplica& output : buffers.outputs(Placement::OUT_OF_PLACE)) {
    for (const Tensor& tensor : output.values()) {
      targets.push_back({bytes_of(tensor), tensor.size_bytes()});
    }
  }
  std::size_t next = 0;
  std::size_t used = 0;
  for (const PerReplica& input : buffers.inputs()) {
    for (std::size_t r = 0; r < input.size(); ++r) {
      const Tensor& tensor = input.values()[r];
      const std::size_t size_bytes = tensor.size_bytes();
      if (size_bytes == 0) continue;
      inputs_of_owner_[r].push_back({bytes_of(tensor), bytes_of(tensor), size_bytes});
      if (placement == Placement::IN_PLACE) {
        add(bytes_of(tensor), bytes_of(tensor), size_bytes);
        continue;
      }
      while (next < targets.size() && targets[next].size_bytes - used < size_bytes) {
        ++next;
        used = 0;
      }
      if (next == targets.size()) {
        scratch_.push_back(Tensor::empty(DType::UINT8, Shape{size_bytes}, tensor.device()));
        std::fill_n(bytes_of(scratch_.back()), size_bytes, std::byte{0});
        add(bytes_of(tensor), bytes_of(scratch_.back()), size_bytes);
      } else {
        add(bytes_of(tensor), targets[next].data + used, size_bytes);
        used += size_bytes;
      }
    }
  }
}

void Limit::add(std::byte* source, std::byte* target, std::size_t size_bytes) {
  traffic_bytes_ += 2 * size_bytes;
  for (std::size_t done = 0; done < size_bytes; done += kPieceBytes) {
    pieces_.push_back({source + done, target + done, std::min(kPieceBytes, size_bytes - done)});
  }
}

void Limit::prepare(OwnerThreads& owners) const {
  owners.for_each_owner([this](std::size_t owner) {
    for (const Range& range : inputs_of_owner_[owner]) {
      std::fill_n(reinterpret_cast<float*>(range.source), range.size_bytes / sizeof(float), 1.0F);
    }
  });
}

void Limit::run(Walk walk) const {
  if (threads_ == LimitThreads::POOL) {
    if (pieces_.empty()) return;
    HostThreadPool::instance().run(pieces_.size(),
                                   [this, walk](std::size_t index) { run_piece(index, walk); });
    return;
  }
  for (std::size_t index = 0; index < pieces_.size(); ++index) run_piece(index, walk);
}

void Limit::run_piece(std::size_t index, Walk walk) const {
  const Range& piece = pieces_[index];
  if (piece.target == piece.source) {
    scale_floats(reinterpret_cast<float*>(piece.source), piece.size_bytes / sizeof(float), 0.5F,
                 walk);
  } else {
    copy_non_temporal(piece.target, piece.source, piece.size_bytes, walk);
  }
}

}  // namespace crossdevice::bench
