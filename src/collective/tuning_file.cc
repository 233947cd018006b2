// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/tuning_file.h"

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

AllReduceTuning read_tuning_file() {
  constexpr std::size_t kMaxTuningBytes = std::size_t{64} << 10;
  const std::string& file = environment().tuning_file;
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  const int why = errno;
  if (!in.is_open() && (why == EMFILE || why == ENFILE || why == ENOMEM)) {
    throw ResourceExhaustedError(fmt::format("CROSSDEVICE_TUNING_FILE: {} cannot be opened: {}",
                                             file, std::generic_category().message(why)));
  }
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || text.str().size() > kMaxTuningBytes) {
    throw ValueError(fmt::format("CROSSDEVICE_TUNING_FILE: {} cannot be read", file));
  }
  try {
    return parse_all_reduce_tuning(text.str());
  } catch (const ValueError& error) {
    throw ValueError(fmt::format("CROSSDEVICE_TUNING_FILE: {}: {}", file, error.what()));
  }
}

}  // namespace crossdevice::detail
