// SPDX-License-Identifier: Apache-2.0
// GPUs after shutdown(), after main and in a child of fork(): no call of CUDA, no hang. Each is for the life of a process, so each test has one of
// its own.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/shutdown.h"
#include "crossdevice/device/stream.h"
#include "crossdevice/device/tensor.h"

#include "support/emulated_gpus.h"

namespace crossdevice {
namespace {

using testing::emulated_cuda;

const bool kInstalled = (testing::install_emulated_gpus(2), true);

// Runs inside a process of its own and ends it: the first line whose claim is wrong is its exit status, 0 if there is none.
#define CLAIM(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
      _exit(1);                                                        \
    }                                                                  \
  } while (false)

#define EXPECT_ALL_CLAIMS(function)                                      \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); /* a fresh process */  \
  EXPECT_EXIT((alarm(60), function(), emulated_cuda().stop(), _exit(0)), \
              ::testing::ExitedWithCode(0), "")

template <class Error, class F>
bool throws(const F& f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void after_shutdown_memory_is_left_and_nothing_is_started() {
  auto tensor = std::make_unique<Tensor>(Tensor::zeros(DType::FLOAT32, {8}, "GPU:0"));
  auto stream = std::make_unique<Stream>("GPU:1", "mine");
  MemoryPool& pool = MemoryPool::of("GPU:0");
  void* const block = pool.allocate(10);
  const detail::GpuEvent event = detail::GpuEvent::record(
      detail::GpuDevice::of("GPU:0"), detail::GpuDevice::of("GPU:0").own_stream());
  event.wait(Deadline::never());
  CLAIM(!detail::are_gpus_closed());
  shutdown();
  CLAIM(detail::are_gpus_closed());
  emulated_cuda().calls().list_queries();
  emulated_cuda().calls().clear();
  using Refused = FailedPreconditionError;
  CLAIM(throws<Refused>([] { (void)detail::GpuDevice::of("GPU:0"); }));
  CLAIM(throws<Refused>([] { (void)Tensor::empty(DType::FLOAT32, {8}, "GPU:0"); }));
  CLAIM(throws<Refused>([&] { (void)Tensor::view(tensor->data(), DType::INT8, {1}, "GPU:0"); }));
  CLAIM(throws<Refused>([&] { (void)copy_to_device(*tensor, "CPU:0"); }));
  CLAIM(throws<Refused>([&] { copy(*tensor, Tensor::zeros(DType::FLOAT32, {8}, "CPU:0")); }));
  CLAIM(throws<Refused>([&] { (void)pool.allocate(10); }));
  CLAIM(throws<Refused>([&] { (void)pool.statistics(); }));
  CLAIM(throws<Refused>([&] { stream->launch([] {}); }));
  CLAIM(throws<Refused>([&] { (void)stream->record(); }));
  CLAIM(throws<Refused>([] { const Stream late("GPU:0", "late"); }));
  stream->stop();
  pool.deallocate(block, 10);
  tensor.reset();
  stream.reset();
  CLAIM(event.has_completed());
  CLAIM(num_gpus() == 2);
  CLAIM(Device("GPU:1").is_present());
  CLAIM(emulated_cuda().calls().list().empty());
  // Hosts still work.
  CLAIM(Tensor::zeros(DType::INT32, {3}, "CPU:0").span<int>()[2] == 0);
}

TEST(GpuShutdownTest, AfterShutdownMemoryIsLeftAndNothingIsStarted) {
  EXPECT_ALL_CLAIMS(after_shutdown_memory_is_left_and_nothing_is_started);
}

void the_first_use_may_come_after_shutdown() {
  shutdown();
  CLAIM(throws<FailedPreconditionError>([] { (void)detail::GpuDevice::of("GPU:0"); }));
  CLAIM(throws<FailedPreconditionError>([] { (void)Tensor::empty(DType::INT8, {8}, "GPU:0"); }));
}

TEST(GpuShutdownTest, TheFirstUseMayComeAfterShutdown) {
  EXPECT_ALL_CLAIMS(the_first_use_may_come_after_shutdown);
}

void in_a_child_of_fork_no_gpu_is_used() {
  auto tensor = std::make_unique<Tensor>(Tensor::zeros(DType::FLOAT32, {8}, "GPU:0"));
  auto stream = std::make_unique<Stream>("GPU:1", "mine");
  emulated_cuda().block_stream(stream->view().cuda());
  auto event = std::make_unique<Event>(stream->record());
  MemoryPool& pool = MemoryPool::of("GPU:0");
  CLAIM(emulated_cuda().synchronize(detail::GpuDevice::of("GPU:0").own_stream()));
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    using Refused = FailedPreconditionError;
    CLAIM(throws<Refused>([] { (void)detail::GpuDevice::of("GPU:0"); }));
    CLAIM(throws<Refused>([] { (void)Tensor::empty(DType::FLOAT32, {8}, "GPU:0"); }));
    CLAIM(throws<Refused>([&] { (void)copy_to_device(*tensor, "CPU:0"); }));
    CLAIM(throws<Refused>([&] { (void)pool.allocate(10); }));
    CLAIM(throws<Refused>([&] { stream->launch([] {}); }));
    CLAIM(throws<Refused>([&] { stream->synchronize(Deadline::never()); }));
    CLAIM(throws<Refused>([&] { stream->stop(); }));
    CLAIM(throws<Refused>([&] { event->wait(Deadline::never()); }));
    CLAIM(throws<Refused>([&] { (void)event->has_completed(); }));
    event.reset();
    stream.reset();
    tensor.reset();
    _exit(0);
  }
  CLAIM(child > 0);
  int status = 0;
  CLAIM(waitpid(child, &status, 0) == child);
  CLAIM(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CLAIM(!detail::are_gpus_closed());
  emulated_cuda().release_everything();
  event->wait(Deadline::never());
}

TEST(GpuShutdownTest, InAChildOfForkNoGpuIsUsed) {
  EXPECT_ALL_CLAIMS(in_a_child_of_fork_no_gpu_is_used);
}

/// What dies after the end of main, and must not call CUDA any more.
struct Statics {
  std::vector<Tensor> tensors;
  std::unique_ptr<Stream> stream;
  ~Statics() {
    emulated_cuda().calls().list_queries();
    emulated_cuda().calls().clear();
    tensors.clear();
    stream.reset();
    CLAIM(emulated_cuda().calls().list().empty());
  }
};

void static_tensors_die_after_main() {
  // Made before the first use of a GPU, so it dies when CUDA may be gone.
  static Statics statics;
  statics.tensors.push_back(Tensor::zeros(DType::FLOAT32, {8}, "GPU:0"));
  statics.tensors.push_back(Tensor::zeros(DType::FLOAT32, {1 << 20}, "GPU:1"));
  statics.stream = std::make_unique<Stream>("GPU:0", "static");
  // Made after it: dies first, while CUDA still works.
  static const Tensor late = Tensor::zeros(DType::FLOAT32, {8}, "GPU:0");
  std::exit(late ? 0 : 1);
}

TEST(GpuShutdownTest, StaticTensorsDieAfterMain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The emulation says so on stderr when it is called after its end.
  EXPECT_EXIT((alarm(60), static_tensors_die_after_main()), ::testing::ExitedWithCode(0),
              ::testing::Not(::testing::HasSubstr("after its end")));
}

}  // namespace
}  // namespace crossdevice
