// SPDX-License-Identifier: Apache-2.0
// Gives a fuzz target every file of the folders (or the files) that are named, in order. Any build can do this; what the target checks is checked.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

int replay(int argc, char** argv) {
  std::size_t num_replayed = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& path : files_of(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return 1;
      }
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      // Before it runs: who ends the process is the last one named.
      std::printf("%s\n", path.filename().c_str());
      std::fflush(stdout);
      (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                   bytes.size());
      ++num_replayed;
    }
  }
  std::printf("%zu inputs replayed\n", num_replayed);
  return num_replayed == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return replay(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
