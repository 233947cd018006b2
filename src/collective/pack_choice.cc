// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/pack_choice.h"

#include <algorithm>
#include <bit>

namespace crossdevice {

std::vector<PackCandidate> rank_pack_sizes(std::size_t num_ranks, bool is_mesh,
                                           const AllReduceTuning& tuning) {
  std::vector<PackCandidate> candidates;
  if (num_ranks < 2 || !tuning.links.has_value()) return candidates;
  const LinkModel& links = *tuning.links;
  const auto predict = [&](std::size_t size_bytes) {
    return predict_all_reduce_seconds(choose_all_reduce(num_ranks, size_bytes, is_mesh, tuning),
                                      num_ranks, size_bytes, links);
  };
  // What is reduced where it lies begins with rounds in which all learn that they mean the same.
  const auto agreement_rounds = static_cast<double>(std::bit_width(num_ranks - 1));
  const double agreement_seconds = agreement_rounds * links.latency_seconds;
  // What a byte costs where nothing else does: between two sizes of one algorithm.
  const AllReduceAlgorithm last = choose_all_reduce(num_ranks, kMaxPackBytes, is_mesh, tuning);
  const double byte_seconds = (predict_all_reduce_seconds(last, num_ranks, kMaxPackBytes, links) -
                               predict_all_reduce_seconds(last, num_ranks, 0, links)) /
                              static_cast<double>(kMaxPackBytes);
  for (std::size_t size = kMinPackBytes; size <= kMaxPackBytes; size *= 2) {
    const double seconds = predict(size) + agreement_seconds;
    candidates.push_back(
        {.size_bytes = size,
         .predicted_seconds = seconds,
         .overhead = 1 - std::min(1.0, byte_seconds * static_cast<double>(size) / seconds)});
  }
  auto choice = std::find_if(candidates.begin(), candidates.end(), [](const PackCandidate& each) {
    return each.overhead <= kMaxPackOverhead;
  });
  if (choice == candidates.end()) --choice;
  std::rotate(candidates.begin(), choice, choice + 1);
  return candidates;
}

}  // namespace crossdevice
