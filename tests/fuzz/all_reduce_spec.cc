// SPDX-License-Identifier: Apache-2.0
// all_reduce_spec as text: what is accepted prints as text with the same meaning, and sizes take its algorithms in ascending order.
#include "crossdevice/ops/all_reduce_spec.h"

#include <limits>
#include <string>
#include <vector>

#include "crossdevice/core/error.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice {
namespace {

void check(const std::string& text) {
  std::vector<AllReduceSpecTuple> tuples;
  try {
    const AllReduceSpec spec(text);
    FUZZ_EXPECT(AllReduceSpec(spec.to_string()) == spec);
    tuples.assign(spec.tuples().begin(), spec.tuples().end());
    FUZZ_EXPECT(!tuples.empty() && tuples.back().limit.value() == -1);
    FUZZ_EXPECT(AllReduceSpec::from_tuples(tuples) == spec);
    FUZZ_EXPECT(spec.index_for(std::numeric_limits<std::size_t>::max()) == tuples.size() - 1);
    for (std::size_t i = 0; i + 1 < tuples.size(); ++i) {
      const auto limit = static_cast<std::size_t>(tuples[i].limit.value());
      FUZZ_EXPECT(spec.index_for(limit) == i);
      FUZZ_EXPECT(spec.index_for(limit + 1) > i);
    }
  } catch (const ValueError&) {
    FUZZ_EXPECT(tuples.empty());  // a spec that was accepted is accepted again
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::check(crossdevice::fuzz::text_of(data, size));
  return 0;
}
