// SPDX-License-Identifier: Apache-2.0
#include "run/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <sys/stat.h>
#include <unistd.h>

namespace crossdevice::run {

OutputSink::OutputSink(int fd) : fd_(fd) {
  struct stat status {};
  is_file_ = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

void OutputSink::drop() {
  pending_.clear();
  written_ = 0;
}

void OutputSink::write_some() {
  const std::size_t waiting = pending_.size() - written_;
  const std::size_t size = is_file_ ? waiting : std::min<std::size_t>(waiting, PIPE_BUF);
  const ssize_t count = ::write(fd_, pending_.data() + written_, size);
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    give_up();
    return;
  }
  written_ += static_cast<std::size_t>(count);
  // Moving the rest to the front each time would cost as much as writing it.
  if (written_ == pending_.size()) {
    drop();
  } else if (written_ > kFullBytes) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace crossdevice::run
