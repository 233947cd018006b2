// SPDX-License-Identifier: Apache-2.0
// Tuning files: refused, or a tuning that its text gives again, with which every size finds an algorithm, the same for all links where it says so.
#include <string>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/core/error.h"

#include "fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  AllReduceTuning tuning;
  try {
    tuning = parse_all_reduce_tuning(fuzz::text_of(data, size));
  } catch (const ValueError&) {
    return 0;
  }
  FUZZ_EXPECT(parse_all_reduce_tuning(to_string(tuning)) == tuning);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1000}, std::size_t{1} << 40U}) {
    for (const bool is_mesh : {false, true}) {
      const AllReduceAlgorithm choice = choose_all_reduce(5, bytes, is_mesh, tuning);
      FUZZ_EXPECT(!to_string(choice).empty());
      if (pins_every_size(tuning, is_mesh)) {  // whatever the links are like
        AllReduceTuning pinned = tuning;
        pinned.links.reset();
        FUZZ_EXPECT(choose_all_reduce(5, bytes, is_mesh, pinned) == choice);
      }
      if (!tuning.links.has_value()) continue;
      FUZZ_EXPECT(rank_all_reduce_algorithms(5, bytes, is_mesh, tuning)[0].algorithm == choice);
    }
  }
  return 0;
}
