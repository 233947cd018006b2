// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/secret_file.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/comm/tcp_transport.h"
#include "crossdevice/core/error.h"

#include "comm/detail/cluster_state.h"
#include "support/threaded_cluster.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

class SecretFile {
 public:
  SecretFile(const std::string& contents, mode_t mode) {
    std::string path = ::testing::TempDir() + "crossdevice-secret-XXXXXX";
    const int fd = ::mkstemp(path.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::write(fd, contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
    EXPECT_EQ(::fchmod(fd, mode), 0);
    ::close(fd);
    path_ = path;
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(SecretFileTest, IsForItsOwnerOnlyAndHoldsAFewBytes) {
  EXPECT_EQ(read_secret(SecretFile("hush\n", 0600).path()), "hush");
  EXPECT_EQ(read_secret(SecretFile("hush", 0400).path()), "hush");
  EXPECT_EQ(read_secret(SecretFile(std::string(4096, 'x'), 0600).path()), std::string(4096, 'x'));
  EXPECT_THROW((void)read_secret(SecretFile("hush", 0640).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("hush", 0604).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("", 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("\n", 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile(std::string(4097, 'x'), 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret("/nonexistent/secret"), ValueError);
  EXPECT_THROW((void)read_secret("/dev/null"), ValueError);
  EXPECT_THROW((void)read_secret(::testing::TempDir()), ValueError);
}

/// Nobody writes to it, so that reading would never end.
TEST(SecretFileTest, APipeIsRefused) {
  const std::string path =
      ::testing::TempDir() + "crossdevice-secret-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW((void)read_secret(path), ValueError);
  ::unlink(path.c_str());
}

/// A secret that this very call names, whatever the environment says; tensors' connections prove it too.
TEST(SecretFileTest, OneThatJoinNamesIsTheJobs) {
  std::optional<SecretFile> file(std::in_place, "hush\n", 0600);
  const JoinOptions options{.timeout_seconds = 60, .secret_file = file->path()};
  std::atomic<int> num_joined = 0;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    cluster->barrier();
    if (++num_joined == 3) file.reset();  // nobody reads it again
    cluster->barrier();
    const std::shared_ptr<Cluster> pair =
        cluster->rank() < 2 ? cluster->subgroup({0, 1}) : cluster->subgroup({2});
    EXPECT_EQ(ClusterInside::secret(*pair), "hush");
    const std::unique_ptr<Transport> transport = make_tcp_transport(cluster);
    const int next[] = {(cluster->rank() + 1) % 3, (cluster->rank() + 2) % 3};
    transport->connect(next, Deadline::after(std::chrono::seconds(60)));
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work, options), testing::no_errors(3));
}

TEST(SecretFileTest, WorkersThatNameDifferentOnesDoNotMeet) {
  const SecretFile files[] = {SecretFile("hush", 0600), SecretFile("hash", 0600)};
  testing::ThreadedAllGather gather(2);
  const std::vector<std::string> errors = testing::run_ranks(2, [&](std::size_t rank) {
    const CallbackClusterResolver resolver(
        static_cast<int>(rank), 2,
        [&gather, rank](std::span<const std::byte> mine, std::span<std::byte> all) {
          gather(rank, mine, all);
        });
    (void)Cluster::join(resolver, {.timeout_seconds = 2, .secret_file = files[rank].path()});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));  // did not come
  EXPECT_THAT(errors[1], HasSubstr("this worker and the chief hold different secrets"));
  EXPECT_THAT(
      testing::run_clusters(1, [](const auto&) {}, {.secret_file = "/nonexistent/secret"})[0],
      HasSubstr("/nonexistent/secret"));
}

}  // namespace
}  // namespace crossdevice::detail
