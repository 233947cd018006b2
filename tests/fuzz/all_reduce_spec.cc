// SPDX-License-Identifier: Apache-2.0
// all_reduce_spec as text and as tuples, of the same bytes: what is accepted prints as text with the same meaning, and sizes take its algorithms in
// ascending order.
#include "crossdevice/ops/all_reduce_spec.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
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
    FUZZ_EXPECT(text.find('\0') != std::string::npos || AllReduceSpec(text.c_str()) == spec);
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

/// Nothing: refused.
template <class Make>
std::optional<AllReduceSpec> spec_of(Make make) {
  try {
    return make();
  } catch (const ValueError& error) {
    FUZZ_EXPECT(error.what()[0] != '\0');
    return std::nullopt;
  }
}

/// Numbers that no text can say, as programs may have them.
void check_tuples(fuzz::Input input) {
  constexpr const char* kAlgorithms[] = {"nccl", "xring", "pscpu/pscpu"};
  std::vector<AllReduceSpecTuple> tuples;
  while (!input.is_empty() && tuples.size() < 4) {
    const std::size_t kind = input.below(std::size(kAlgorithms) + 1);
    const std::string algorithm =
        kind < std::size(kAlgorithms) ? std::string(kAlgorithms[kind]) : input.text();
    const int shards = input.coin() ? 1 : input.number<std::int16_t>();
    const std::int64_t limit = input.coin() ? -1 : input.number<std::int64_t>();
    tuples.push_back({.algorithm = algorithm, .shards = shards, .limit = limit});
  }
  const auto spec = spec_of([&] { return AllReduceSpec::from_tuples(tuples); });
  if (spec.has_value()) FUZZ_EXPECT(AllReduceSpec(spec->to_string()) == *spec);
  if (tuples.size() == 1) {
    const AllReduceSpecTuple& only = tuples[0];
    const std::string algorithm = only.algorithm.c_str();  // without what follows a zero byte
    const auto same =
        spec_of([&] { return AllReduceSpec(algorithm.c_str(), only.shards, only.limit); });
    FUZZ_EXPECT(algorithm != only.algorithm || same == spec);
  } else if (tuples.size() == 2) {
    FUZZ_EXPECT(spec_of([&] { return AllReduceSpec{tuples[0], tuples[1]}; }) == spec);
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::check(crossdevice::fuzz::text_of(data, size));
  crossdevice::check_tuples({data, size});
  return 0;
}
