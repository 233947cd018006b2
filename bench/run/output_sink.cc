// SPDX-License-Identifier: Apache-2.0
#include "run/output_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossdevice::run {

OutputSink::OutputSink(int fd) : fd_(fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  is_file_ = S_ISREG(status.st_mode);
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    opened_ = Descriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
}

void OutputSink::drop() {
  pending_.clear();
  written_ = 0;
}

void OutputSink::write_some() {
  const std::size_t waiting = pending_.size() - written_;
  const std::size_t size = is_file_ ? waiting : std::min<std::size_t>(waiting, PIPE_BUF);
  const ssize_t count = ::write(fd(), pending_.data() + written_, size);
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
