// SPDX-License-Identifier: Apache-2.0
/// The idx format: two zero bytes, a type, the number of dimensions, each dimension as big-endian 32 bits, then the elements.
#include "train/idx_file.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/core.h>
#include <zlib.h>

namespace crossdevice::train {

namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
/// A header that claims more than this is damaged; the largest known file of the family has 2.2e8 bytes.
constexpr std::size_t kMaxBytes = std::size_t{1} << 32U;

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rbe")) {
    if (!file_) {
      throw std::runtime_error(
          fmt::format("cannot open {}: {}", path.string(), std::generic_category().message(errno)));
    }
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw std::runtime_error(fmt::format("{}: {}", path_.string(), why));
  }

  /// Fills `buffer`, or fails.
  void read(std::span<std::uint8_t> buffer, std::string_view what) {
    while (!buffer.empty()) {
      const unsigned piece = static_cast<unsigned>(std::min<std::size_t>(buffer.size(), 1U << 20U));
      const int got = gzread(file_.get(), buffer.data(), piece);
      if (got < 0) fail("damaged: zlib cannot decompress it");
      if (got == 0) fail(fmt::format("ends within its {}", what));
      buffer = buffer.subspan(static_cast<std::size_t>(got));
    }
  }

  void expect_end() {
    std::uint8_t byte = 0;
    const int got = gzread(file_.get(), &byte, 1);
    if (got < 0) fail("damaged: zlib cannot decompress it");
    if (got > 0) fail("goes on behind its data");
    // An archive that ends before its checksum has given all its data and is damaged all the same.
    int error = Z_OK;
    (void)gzerror(file_.get(), &error);
    if (error != Z_OK && error != Z_STREAM_END) fail("damaged: its archive ends early");
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
};

}  // namespace

IdxArray read_idx_file(const std::filesystem::path& path) {
  Reader reader(path);
  std::uint8_t magic[4] = {};
  reader.read(magic, "header");
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] == 0) {
    reader.fail(
        fmt::format("not an idx file of unsigned bytes: it begins with {:02x} {:02x} {:02x} "
                    "{:02x}, expected 00 00 08 <number of dimensions>",
                    magic[0], magic[1], magic[2], magic[3]));
  }
  IdxArray array;
  std::size_t size_bytes = 1;
  for (unsigned d = 0; d < magic[3]; ++d) {
    std::uint8_t raw[4] = {};
    reader.read(raw, "header");
    const std::size_t dim = (std::size_t{raw[0]} << 24U) | (std::size_t{raw[1]} << 16U) |
                            (std::size_t{raw[2]} << 8U) | std::size_t{raw[3]};
    if (dim != 0 && size_bytes > kMaxBytes / dim) reader.fail("its header claims more than 4 GiB");
    size_bytes *= dim;
    array.dims.push_back(dim);
  }
  // Step by step: a header that promises much does not get memory that the file cannot fill.
  constexpr std::size_t kStepBytes = std::size_t{16} << 20U;
  while (array.bytes.size() < size_bytes) {
    const std::size_t done = array.bytes.size();
    array.bytes.resize(done + std::min(kStepBytes, size_bytes - done));
    reader.read(std::span(array.bytes).subspan(done), "elements");
  }
  reader.expect_end();
  return array;
}

}  // namespace crossdevice::train
