// SPDX-License-Identifier: Apache-2.0
// What crossdevice-run reads from its starter on another host: refused, or a job that makes sense, is told again in the same words, and was read to
// its last byte and no further.
#include "run/host_job.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice::run {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& content) : fd_(::memfd_create("job", MFD_CLOEXEC)) {
    FUZZ_EXPECT(fd_ >= 0);
    FUZZ_EXPECT(::write(fd_, content.data(), content.size()) ==
                static_cast<ssize_t>(content.size()));
    FUZZ_EXPECT(::lseek(fd_, 0, SEEK_SET) == 0);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] std::size_t position() const {
    return static_cast<std::size_t>(::lseek(fd_, 0, SEEK_CUR));
  }

 private:
  int fd_;
};

void check(const std::string& bytes) {
  const Descriptor in(bytes);
  HostJob job;
  try {
    job = receive_host_job(in.get());
  } catch (const std::runtime_error&) {
    return;
  }
  FUZZ_EXPECT(!job.command.empty());
  FUZZ_EXPECT(job.num_local_workers >= 1 && job.first_rank >= 0);
  FUZZ_EXPECT(job.num_workers - job.first_rank >= job.num_local_workers);
  for (const double seconds : {job.grace_seconds, job.silence_seconds}) {
    FUZZ_EXPECT(std::isfinite(seconds) && seconds >= 0);
  }
  const std::string said = encode(job);
  const Descriptor again(said + "what follows");
  const HostJob same = receive_host_job(again.get());
  FUZZ_EXPECT(again.position() == said.size());
  FUZZ_EXPECT(encode(same) == said);
  FUZZ_EXPECT(same.command == job.command && same.variables == job.variables &&
              same.secret == job.secret && same.directory == job.directory);
}

/// The bytes of a field list with its length before it, as a starter of this version begins it.
std::string framed(const std::string& fields) {
  const std::string version = library_version_string();
  const std::string all = std::to_string(version.size()) + ":" + version + fields;
  return std::to_string(all.size()) + ":" + all;
}

}  // namespace
}  // namespace crossdevice::run

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = crossdevice::fuzz::text_of(data, size);
  crossdevice::run::check(bytes);
  crossdevice::run::check(crossdevice::run::framed(bytes));
  return 0;
}
