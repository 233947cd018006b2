// SPDX-License-Identifier: Apache-2.0
// A model's gradients as CSV: refused with the line's number, or as many elements as the file says, and written anew they read the same.
#include "collective/gradient_list.h"

#include <iterator>
#include <sstream>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

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

void require_same(const std::vector<Gradient>& a, const std::vector<Gradient>& b) {
  FUZZ_EXPECT(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    FUZZ_EXPECT(a[i].name == b[i].name && a[i].shape == b[i].shape);
  }
}

/// A file that no disk has.
class ReadableFile {
 public:
  explicit ReadableFile(const std::string& text) : fd_(::memfd_create("gradients", MFD_CLOEXEC)) {
    FUZZ_EXPECT(::write(fd_, text.data(), text.size()) == std::ssize(text));
  }
  ~ReadableFile() { ::close(fd_); }
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// A name that the input says, in a folder that there is not.
void check_missing(const std::string& text) {
  try {
    (void)read_gradient_list("/proc/self/fd/none/" + text);
    FUZZ_FAIL("a file that is not there");
  } catch (const programs::ArgumentError& error) {
    FUZZ_EXPECT(std::string(error.what()).starts_with("cannot open"));
  }
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
  require_same(parse_gradient_list(again, "what was written"), gradients);
  require_same(read_gradient_list(ReadableFile(text).path()), gradients);
}

}  // namespace
}  // namespace crossdevice::bench

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = crossdevice::fuzz::text_of(data, size);
  crossdevice::bench::check(text);
  crossdevice::bench::check_missing(text);
  return 0;
}
