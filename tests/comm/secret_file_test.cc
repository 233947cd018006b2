// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/secret_file.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
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

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHush = "hush, nobody hears";

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

/// What is said of a file that is refused.
std::string refusal_of(const std::string& path) {
  try {
    (void)read_secret(path);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "it was read";
}

TEST(SecretFileTest, HoldsFromSixteenBytesUp) {
  const std::string shortest(16, 'x');
  const std::string longest(4096, 'x');
  EXPECT_EQ(read_secret(SecretFile(shortest, 0600).path()), shortest);
  EXPECT_EQ(read_secret(SecretFile(shortest + "\n", 0400).path()), shortest);
  EXPECT_EQ(read_secret(SecretFile(longest, 0600).path()), longest);
  for (const auto& [text, size] : std::map<std::string, int>{
           {"", 0}, {"\n", 0}, {"hush, but short", 15}, {"hush, but short\n", 15}}) {
    EXPECT_THAT(refusal_of(SecretFile(text, 0600).path()),
                AllOf(HasSubstr("holds a secret of " + std::to_string(size) + " bytes"),
                      HasSubstr("must hold one of 16 to 4096"), Not(HasSubstr("hush"))));
  }
  EXPECT_THAT(refusal_of(SecretFile(longest + 'x', 0600).path()),
              HasSubstr("is larger than 4096 bytes, and must hold a secret of 16 to 4096"));
}

TEST(SecretFileTest, IsForItsOwnerOnly) {
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U, 04640U}) {
    const SecretFile file(kHush, mode);
    EXPECT_THAT(refusal_of(file.path()),
                AllOf(HasSubstr(file.path()), HasSubstr(fmt::format("has mode {:04o}", mode)),
                      HasSubstr("must be for its owner only")));
  }
}

TEST(SecretFileTest, BelongsToThisUserOrRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away, and read another user's";
  constexpr uid_t kOther = 54321;
  const SecretFile file(kHush, 0600);
  ASSERT_EQ(::chown(file.path().c_str(), kOther, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(refusal_of(file.path()),
              HasSubstr("belongs to user 54321, and must belong to root or to user 0, who runs"));
  // Whose it is, and not who has started this process; the folder may be root's alone.
  ASSERT_EQ(::seteuid(kOther), 0);
  const std::string own = refusal_of(file.path());
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_THAT(own, AnyOf("it was read", HasSubstr("Permission denied")));
}

TEST(SecretFileTest, IsAFile) {
  EXPECT_THAT(refusal_of("/nonexistent/secret"), HasSubstr("/nonexistent/secret: No such file"));
  EXPECT_THAT(refusal_of("/dev/null"), HasSubstr("/dev/null is no regular file"));
  EXPECT_THAT(refusal_of(::testing::TempDir()), HasSubstr("is no regular file"));
}

/// Nobody writes to it, so that reading would never end.
TEST(SecretFileTest, APipeIsRefused) {
  const std::string path =
      ::testing::TempDir() + "crossdevice-secret-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(path), HasSubstr("is no regular file"));
  ::unlink(path.c_str());
}

/// A secret that this very call names, whatever the environment says; tensors' connections prove it too.
TEST(SecretFileTest, OneThatJoinNamesIsTheJobs) {
  std::optional<SecretFile> file(std::in_place, std::string(kHush) + "\n", 0600);
  const JoinOptions options{.timeout_seconds = 60, .secret_file = file->path()};
  std::atomic<int> num_joined = 0;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    cluster->barrier();
    if (++num_joined == 3) file.reset();  // nobody reads it again
    cluster->barrier();
    const std::shared_ptr<Cluster> pair =
        cluster->rank() < 2 ? cluster->subgroup({0, 1}) : cluster->subgroup({2});
    EXPECT_EQ(ClusterInside::secret(*pair), kHush);
    const std::unique_ptr<Transport> transport = make_tcp_transport(cluster);
    const int next[] = {(cluster->rank() + 1) % 3, (cluster->rank() + 2) % 3};
    transport->connect(next, Deadline::after(std::chrono::seconds(60)));
    cluster->barrier();
  };
  EXPECT_EQ(testing::run_clusters(3, work, options), testing::no_errors(3));
}

TEST(SecretFileTest, WorkersThatNameDifferentOnesDoNotMeet) {
  const SecretFile files[] = {SecretFile(kHush, 0600), SecretFile("hash of nobody else", 0600)};
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
