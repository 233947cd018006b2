// SPDX-License-Identifier: Apache-2.0
// A model's gradients as CSV: refused with the line's number, or as many elements as the file says, and written anew they read the same.
#include "collective/gradient_list.h"

#include <sstream>
#include <string>

#include "fuzz/fuzz_target.h"
#include "support/program.h"

namespace crossdevice::bench {
namespace {

std::string csv_of(const std::vector<Gradient>& gradients) {
  std::string text = "name,shape,numel\n";
  for (const Gradient& each : gradients) {
    text += each.name + ",";
    for (std::size_t axis = 0; axis < each.shape.rank(); ++axis) {
      if (axis != 0) text += 'x';
      text += std::to_string(each.shape[axis]);
    }
    text += "," + std::to_string(each.num_elements()) + "\n";
  }
  return text;
}

void check(const std::string& text) {
  std::istringstream in(text);
  std::vector<Gradient> gradients;
  try {
    gradients = parse_gradient_list(in, "input");
  } catch (const programs::ArgumentError& error) {
    FUZZ_EXPECT(std::string(error.what()).starts_with("input"));
    return;
  }
  FUZZ_EXPECT(!gradients.empty());
  std::istringstream again(csv_of(gradients));
  const std::vector<Gradient> same = parse_gradient_list(again, "what was written");
  FUZZ_EXPECT(same.size() == gradients.size());
  for (std::size_t i = 0; i < same.size(); ++i) {
    FUZZ_EXPECT(same[i].name == gradients[i].name && same[i].shape == gradients[i].shape);
  }
}

}  // namespace
}  // namespace crossdevice::bench

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::bench::check(crossdevice::fuzz::text_of(data, size));
  return 0;
}
