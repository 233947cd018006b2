// SPDX-License-Identifier: Apache-2.0
// Why NcclAllReduce cannot have NCCL: each cause is named once, however many objects and calls there are, and what reduces instead does so rightly. What NCCL
// itself refuses is in nccl_fallback_test.cc.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/select_cross_device_ops.h"

#include "comm/detail/nccl_loader.h"
#include "support/forked_cases.h"
#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/thrown.h"
#include "support/without_descriptors.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::emulated_cuda;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::thrown;
using testing::vector_of;

std::size_t count_of(std::string_view part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// Two objects, each of them asked twice in every way, reduce over `devices`.
void expect_right_values(const Devices& devices) {
  for (int object = 0; object < 2; ++object) {
    NcclAllReduce ops(1);
    for (const float base : {1.0F, 2.0F}) {
      std::vector<PerReplica> batch;
      batch.reserve(3);
      for (int i = 0; i < 3; ++i) {
        batch.push_back({vector_of(std::vector<float>(50, base), devices[0]),
                         vector_of(std::vector<float>(50, base + 2), devices[1])});
      }
      ops.reduce_into(ReduceOp::SUM, batch[0], batch[0]);
      ops.batch_reduce_into(ReduceOp::MEAN, batch, {.bytes_per_pack = 400});
      const Mirrored mean = ops.reduce(ReduceOp::MEAN, batch[1], batch[1]);
      ops.check();
      testing::expect_mirrored(batch[0], devices, std::vector<float>(50, 2 * base + 2));
      testing::expect_mirrored(batch[1], devices, std::vector<float>(50, base + 1));
      testing::expect_mirrored(mean, devices, std::vector<float>(50, base + 1));
    }
  }
}

void expect_said_once(const testing::LogKeeper& log, const std::string& text) {
  EXPECT_EQ(count_of(text, log.texts()), 1U) << text << "\nin\n" << log.texts();
  EXPECT_EQ(count_of(" instead", log.texts()), 1U) << log.texts();
}

void expect_hosts_to_reduce(const std::string& why_no_gpu) {
  const testing::LogKeeper log;
  // Who asks for a GPU hears why there is none, and nobody else is kept from working.
  EXPECT_THAT(thrown([] { (void)Tensor::empty(DType::FLOAT32, {1}, "GPU:0"); }),
              HasSubstr(why_no_gpu));
  expect_right_values({"CPU:0", "CPU:1"});
  expect_said_once(log,
                   "NcclAllReduce over [CPU:0, CPU:1]: NCCL reduces on GPUs, these are host "
                   "devices; the host reduces instead");
  EXPECT_EQ(dynamic_cast<NcclAllReduce*>(select_cross_device_ops({"CPU:0", "CPU:1"}).get()),
            nullptr);
}

/// For a process of its own. The library's reason follows from what has been set up.
void expect_kernels_to_reduce(const std::string& reason) {
  const testing::LogKeeper log;
  expect_right_values({"GPU:0", "GPU:1"});
  expect_said_once(log, "NcclAllReduce over [GPU:0, GPU:1]: " + reason +
                            "; the library's own kernels reduce instead");
  EXPECT_GT(emulated_cuda().calls().count("kernels.reduce") +
                emulated_cuda().calls().count("kernels.reduce_many"),
            0U);
  EXPECT_EQ(emulated_cuda().calls().count("nccl.all_reduce"), 0U);
  EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
}

TEST(NcclCauses, NoDriver) {
  testing::ForkedCases cases;
  cases.run("no driver", [] {
    detail::set_gpu_platform({nullptr, nullptr, "no NVIDIA driver"});
    expect_hosts_to_reduce("no NVIDIA driver");
  });
}

TEST(NcclCauses, NoGpu) {
  testing::ForkedCases cases;
  cases.run("no GPU", [] {
    testing::install_emulated_gpus(0);
    expect_hosts_to_reduce("0 GPUs");
  });
}

TEST(NcclCauses, GpusThatCannotBeCounted) {
  testing::ForkedCases cases;
  cases.run("an error", [] {
    testing::install_emulated_gpus(2);
    emulated_cuda().calls().inject({.function = "cuda.get_device_count", .status = 999});
    expect_hosts_to_reduce("cudaGetDeviceCount: cudaError999");
  });
}

TEST(NcclCauses, NoLibrary) {
  testing::ForkedCases cases;
  cases.run("no library", [] {
    testing::install_emulated_gpus(2);
    detail::set_nccl_library({nullptr, "libnccl.so.2 was not found (nowhere to look)"});
    expect_kernels_to_reduce("libnccl.so.2 was not found (nowhere to look)");
  });
}

/// By the real loader, of what it is given.
void expect_file_to_be_refused(const std::string& file, const std::string& reason) {
  testing::ForkedCases cases;
  cases.run(file, [&] {
    (void)::setenv("CROSSDEVICE_NCCL_LIBRARY", file.c_str(), 1);
    testing::install_emulated_gpus(2);
    detail::set_nccl_library(detail::load_nccl());
    const std::string found = detail::nccl_library().reason_against;
    EXPECT_THAT(found, AnyOf(HasSubstr(reason), HasSubstr("built without")));
    expect_kernels_to_reduce(found);
  });
}

TEST(NcclCauses, ALibraryThatIsMissing) {
  expect_file_to_be_refused("/nowhere/libnccl.so.2", "No such file");
}

TEST(NcclCauses, ALibraryThatIsTooOld) {
  expect_file_to_be_refused(OLD_NCCL, "is older than 2.14.0");
}

TEST(NcclCauses, ALibraryThatLacksFunctions) {
  expect_file_to_be_refused(HALF_NCCL, "has no ncclGetLastError");
}

TEST(NcclCauses, ALibraryThatCannotBeLoadedNowIsTriedAgain) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "AddressSanitizer needs descriptors";
  testing::ForkedCases cases;
  cases.run("want of descriptors", [] {
    (void)::setenv("CROSSDEVICE_NCCL_LIBRARY", OLD_NCCL, 1);
    std::string first;
    {
      const testing::WithoutDescriptors none;
      first = detail::nccl_library().reason_against;
    }
    EXPECT_THAT(first, AnyOf(AllOf(StartsWith("NCCL cannot be loaded now: "),
                                   HasSubstr("Too many open files")),
                             HasSubstr("built without")));
    EXPECT_THAT(detail::nccl_library().reason_against,
                AnyOf(HasSubstr("is older than 2.14.0"), HasSubstr("built without")));
  });
}

TEST(NcclCauses, TwoDevicesOnOneGpu) {
  testing::ForkedCases cases;
  cases.run("logical GPUs", [] {
    (void)::setenv("CROSSDEVICE_LOGICAL_GPUS", "2", 1);
    testing::install_emulated_gpus(1);
    expect_kernels_to_reduce("several of these are on GPU 0, and NCCL takes each GPU once");
  });
}

/// NCCL may hold the GPUs for as long as it does not come back, so that is an error, also for those who ask later.
TEST(NcclCauses, MakingThatTakesTooLongIsAnError) {
  testing::ForkedCases cases;
  cases.run("a late NCCL", [] {
    (void)::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "1", 1);
    testing::install_emulated_gpus(2);
    const testing::LogKeeper log;
    const PerReplica value{vector_of(std::vector<float>(50, 1), "GPU:0"),
                           vector_of(std::vector<float>(50, 2), "GPU:1")};
    emulated_cuda().calls().inject(
        {.function = "nccl.comm_init_rank", .kind = testing::FaultKind::HANG_CALL});
    NcclAllReduce ops(1);
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { ops.reduce_into(ReduceOp::SUM, value, value); }),
        HasSubstr("NCCL did not come to the end of making communicators of [GPU:0, GPU:1]"));
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { ops.reduce_into(ReduceOp::SUM, value, value); }),
        HasSubstr("the end of NCCL's former communicators"));
    EXPECT_EQ(count_of(" instead", log.texts()), 0U) << log.texts();
    emulated_cuda().calls().release_hangs();
    // When it has come back after all, what it made is gone, and the next try is like the first.
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    std::string text = "not yet";
    while (!text.empty() && !deadline.has_passed()) {
      text = thrown<OpError>([&] { ops.reduce_into(ReduceOp::SUM, value, value); });
    }
    EXPECT_EQ(text, "");
    testing::expect_mirrored(value, {"GPU:0", "GPU:1"}, std::vector<float>(50, 3));
  });
}

}  // namespace
}  // namespace crossdevice
