// SPDX-License-Identifier: Apache-2.0
// The real NCCL where there is one, with or without a GPU; and files that are not it.
#include "comm/detail/nccl_loader.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

#include "comm/detail/nccl_error.h"
#include "support/thrown.h"
#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

using crossdevice::testing::thrown;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The reason against a file.
std::string reason_against(const std::string& file) {
  const NcclLibrary library = load_nccl({.file = file});
  EXPECT_EQ(library.api, nullptr);
  return library.reason_against;
}

bool is_built_with_nccl() {
  return load_nccl(NcclPlaces{}).reason_against.find("built without") == std::string::npos;
}

TEST(NcclPlacesTest, WheelsOfTheEnvironmentThenOfTheUser) {
  namespace fs = std::filesystem;
  const fs::path root =
      fs::temp_directory_path() / ("crossdevice_wheels." + std::to_string(::getpid()));
  const fs::path in_environment = root / "env/lib/python3.12/site-packages/nvidia/nccl/lib";
  const fs::path of_the_user = root / "home/.local/lib/python3.11/dist-packages/nvidia/cu13/lib";
  fs::create_directories(in_environment);
  fs::create_directories(of_the_user);
  fs::create_directories(root / "home/.local/lib/perl5/site-packages/nvidia/nccl/lib");
  ::setenv("VIRTUAL_ENV", (root / "env").c_str(), 1);
  ::setenv("HOME", (root / "home").c_str(), 1);
  ::unsetenv("CONDA_PREFIX");
  std::vector<std::string> found;
  for (const std::string& folder : nccl_places().folders) {
    if (folder.starts_with(root.string())) found.push_back(folder);
  }
  EXPECT_THAT(found, ElementsAre(in_environment.string(), of_the_user.string()));
  fs::remove_all(root);
}

class NcclFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_built_with_nccl()) GTEST_SKIP() << "this build has no NCCL";
  }
};

TEST_F(NcclFileTest, OneThatIsMissing) {
  EXPECT_THAT(reason_against("/nowhere/libnccl.so.2"),
              AllOf(StartsWith("CROSSDEVICE_NCCL_LIBRARY=/nowhere/libnccl.so.2: "),
                    HasSubstr("No such file")));
}

TEST_F(NcclFileTest, OneThatIsNoLibrary) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("crossdevice_no_nccl." + std::to_string(::getpid()));
  std::ofstream(path) << "not a library";
  EXPECT_THAT(reason_against(path.string()), HasSubstr(path.string()));
  std::filesystem::remove(path);
}

TEST_F(NcclFileTest, OneThatIsAnotherLibrary) {
  EXPECT_EQ(reason_against("libc.so.6"), "libc.so.6 is not an NCCL: it has no ncclGetVersion");
}

TEST_F(NcclFileTest, OneThatIsTooOld) {
  EXPECT_EQ(reason_against(OLD_NCCL), "NCCL 2.12.12 in " OLD_NCCL " is older than 2.14.0");
}

TEST_F(NcclFileTest, OneThatLacksFunctions) {
  EXPECT_EQ(reason_against(HALF_NCCL), HALF_NCCL " has no ncclGetLastError");
}

TEST_F(NcclFileTest, OneThatCannotBeOpenedForWantOfDescriptorsIsNotMissing) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "AddressSanitizer needs descriptors";
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("crossdevice_want." + std::to_string(::getpid()));
  fs::create_directory(folder);
  const fs::path file = folder / "libnccl.so.2";
  fs::copy_file(OLD_NCCL, file);  // the loader knows nothing of this one yet
  for (const NcclPlaces& places :
       {NcclPlaces{.file = file.string()},
        NcclPlaces{.in_process = false, .on_loader_path = false, .folders = {folder.string()}}}) {
    const std::string said = thrown<ResourceExhaustedError>([&] {
      const testing::WithoutDescriptors none;
      (void)load_nccl(places);
    });
    EXPECT_THAT(said, HasSubstr("Too many open files"));
  }
  EXPECT_EQ(reason_against(file.string()),
            "NCCL 2.12.12 in " + file.string() + " is older than 2.14.0");
  fs::remove_all(folder);
}

/// Before anything is loaded, which then stays.
TEST(NcclInProcessTest, OneOfAnotherNameCounts) {
  const NcclLibrary nowhere = load_nccl({.in_process = false, .on_loader_path = false});
  if (nowhere.reason_against.find("built without") != std::string::npos) GTEST_SKIP() << "no NCCL";
  if (::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    GTEST_SKIP() << "another test of this process has loaded one";
  }
  void* const handle = ::dlopen(HALF_NCCL, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(load_nccl(NcclPlaces{}).reason_against, HALF_NCCL " has no ncclGetLastError");
  ::dlclose(handle);
}

TEST(NcclLoaderTest, NowhereIsSaid) {
  const NcclLibrary library =
      load_nccl({.in_process = false, .on_loader_path = false, .folders = {"/nowhere", "/never"}});
  ASSERT_EQ(library.api, nullptr);
  if (!is_built_with_nccl()) {
    EXPECT_EQ(library.reason_against, "this library was built without NCCL");
    return;
  }
  EXPECT_THAT(library.reason_against,
              AllOf(StartsWith("libnccl.so.2 was not found ("), HasSubstr("/nowhere/libnccl.so.2"),
                    HasSubstr("/never/libnccl.so.2")));
}

TEST(NcclLoaderTest, VersionsAsText) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21400), "2.14.0");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
}

class RealNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = load_nccl();
    if (library_.api == nullptr) GTEST_SKIP() << library_.reason_against;
  }
  NcclLibrary library_;
};

TEST_F(RealNcclTest, SaysWhatItIs) {
  EXPECT_GE(library_.api->version(), kMinimumNcclVersion);
  EXPECT_THAT(library_.api->path(), HasSubstr("libnccl"));
  EXPECT_TRUE(library_.reason_against.empty());
  EXPECT_FALSE(library_.api->error_text(NcclStatus::INVALID_ARGUMENT).empty());
}

TEST_F(RealNcclTest, TheCopyInTheProcessIsTakenAgain) {
  const NcclLibrary again =
      load_nccl({.in_process = true, .on_loader_path = false, .folders = {"/nowhere"}});
  ASSERT_NE(again.api, nullptr) << again.reason_against;
  EXPECT_EQ(std::filesystem::weakly_canonical(again.api->path()),
            std::filesystem::weakly_canonical(library_.api->path()));
}

TEST_F(RealNcclTest, MakesIdsThatDiffer) {
  NcclUniqueId first;
  NcclUniqueId second;
  ASSERT_EQ(library_.api->get_unique_id(&first), NcclStatus::SUCCESS);
  ASSERT_EQ(library_.api->get_unique_id(&second), NcclStatus::SUCCESS);
  EXPECT_NE(first.bytes, second.bytes);
}

TEST_F(RealNcclTest, WithoutADriverItSaysSo) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a driver";
  NcclUniqueId id;
  ASSERT_EQ(library_.api->get_unique_id(&id), NcclStatus::SUCCESS);
  NcclComm comm = nullptr;
  const NcclStatus status = library_.api->comm_init_rank(&comm, 1, id, 0, "crossdevice test");
  ASSERT_NE(status, NcclStatus::SUCCESS);
  EXPECT_THAT(thrown<UnavailableError>(
                  [&] { require_nccl(*library_.api, comm, status, "ncclCommInitRankConfig"); }),
              AllOf(StartsWith("ncclCommInitRankConfig: "),
                    HasSubstr(library_.api->error_text(status)), HasSubstr("CUDA")));
}

TEST_F(RealNcclTest, RevokeIsThereFromItsVersionOn) {
  // NCCL takes no communicator for nothing to do; a library without the function is a usage that it lacks.
  const bool has_it = library_.api->version() >= kNcclWithRevoke;
  EXPECT_EQ(library_.api->comm_revoke(nullptr) == NcclStatus::INVALID_USAGE, !has_it);
}

}  // namespace
}  // namespace crossdevice::detail
