// SPDX-License-Identifier: Apache-2.0
#include "run/line_prefixer.h"

#include <algorithm>

namespace crossdevice::run {

void LinePrefixer::emit(std::string_view tail, std::string& out) {
  out.append(prefix_).append(begun_).append(tail).push_back('\n');
  begun_.clear();
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t room = max_line_bytes_ - begun_.size();
    const std::size_t end = bytes.find('\n');
    if (end <= room && end != std::string_view::npos) {
      emit(bytes.substr(0, end), out);
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() > room) {  // a byte more is known, so this is no line's end
      emit(bytes.substr(0, room), out);
      bytes.remove_prefix(room);
    } else {
      begun_.append(bytes);
      return;
    }
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!begun_.empty()) emit("", out);
}

}  // namespace crossdevice::run
