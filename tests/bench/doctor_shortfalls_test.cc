// SPDX-License-Identifier: Apache-2.0
// What crossdevice-doctor says of machines that lack something: the probes in this process, with a folder in the place of /proc, /sys and /dev, and calls that
// answer as those machines would.
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/ucx_transport.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/gpu_platform.h"

#include "doctor/control_group.h"
#include "doctor/finding.h"
#include "doctor/probes.h"
#include "doctor/system.h"
#include "doctor/verified_all_reduce.h"

namespace crossdevice::doctor {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kGiB = std::size_t{1} << 30;

class DoctorShortfallsTest : public ::testing::Test {
 public:
  DoctorShortfallsTest() { fs::create_directories(system_.root); }
  ~DoctorShortfallsTest() override {
    std::error_code ignored;
    fs::remove_all(system_.root, ignored);
  }
  DoctorShortfallsTest(const DoctorShortfallsTest&) = delete;
  DoctorShortfallsTest& operator=(const DoctorShortfallsTest&) = delete;

 protected:
  /// A file of the machine.
  void write(const std::string& path, const std::string& text) const {
    const fs::path file = system_.root / fs::path(path).relative_path();
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  /// What a control group, "job/task", is charged, and what of that is cache.
  void write_memory(const std::string& group, const std::string& limit, std::size_t charged,
                    std::size_t cache) const {
    const std::string folder = "/sys/fs/cgroup/" + group + "/";
    write(folder + "memory.max", limit + "\n");
    write(folder + "memory.current", std::to_string(charged) + "\n");
    write(folder + "memory.stat", "anon 1\nfile 7\ninactive_file " + std::to_string(cache) + "\n");
  }

  System system_{.root = fs::path(::testing::TempDir()) /
                         ("doctor_machine_" + std::to_string(::getpid()))};
};

Finding named(const Findings& findings, const std::string& name) {
  for (const Finding& each : findings) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << name;
  return {};
}

void expect(const Finding& finding, Status status, const std::string& text,
            const std::string& advice) {
  EXPECT_EQ(finding.status, status) << finding.name << ": " << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.advice, HasSubstr(advice));
}

void expect_fine(const Finding& finding) {
  EXPECT_EQ(finding.status, Status::OK) << finding.name << ": " << finding.text;
  EXPECT_THAT(finding.advice, IsEmpty());
}

int no_limit(int /*resource*/, rlimit* limit) {
  *limit = {RLIM_INFINITY, RLIM_INFINITY};
  return 0;
}

// ---------------------------------------------------------------------------------------------- processor

TEST_F(DoctorShortfallsTest, LessProcessorTimeThanThreads) {
  write("/proc/self/cgroup", "1:name=systemd:/\n0::/job\n");
  write("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  const Finding cores = named(probe_machine(system_), "processor");
  expect(cores, Status::SHORTFALL, "the container may use 0.5 cores", "CROSSDEVICE_NUM_THREADS=1");
  write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  expect_fine(named(probe_machine(system_), "processor"));
}

TEST_F(DoctorShortfallsTest, TheTightestGroupLimitsTheProcessor) {
  EXPECT_FALSE(group_cores(system_).has_value());
  write("/proc/self/cgroup", "0::/slice/job/task\n");
  write("/sys/fs/cgroup/slice/job/task/cpu.max", "400000 100000\n");
  EXPECT_EQ(group_cores(system_), 4);
  write("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(group_cores(system_), 1.5);
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(group_cores(system_), 1.5);
}

/// A container's folder may be mounted as the top, while the path is the machine's.
TEST_F(DoctorShortfallsTest, AGroupWhoseFolderIsNotThere) {
  write("/proc/self/cgroup", "0::/docker/0123\n");
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(group_cores(system_), 3);
  write("/proc/self/cgroup", "0::/../..\n");
  EXPECT_EQ(group_cores(system_), 3);
}

// ---------------------------------------------------------------------------------------------- memory

TEST_F(DoctorShortfallsTest, LittleMemoryOnTheMachine) {
  write("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 524288 kB\n");
  expect(named(probe_machine(system_), "memory"), Status::SHORTFALL, "512 MiB available",
         "end something else");
  write("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  const Finding fine = named(probe_machine(system_), "memory");
  expect_fine(fine);
  EXPECT_THAT(fine.text, Not(HasSubstr("container")));
}

TEST_F(DoctorShortfallsTest, AContainerThatIsFull) {
  write("/proc/meminfo", "MemAvailable: 16777216 kB\n");
  write("/proc/self/cgroup", "0::/\n");
  write_memory("", std::to_string(8 * kGiB), 7 * kGiB + kGiB / 2, 0);
  const Finding memory = named(probe_machine(system_), "memory");
  expect(memory, Status::SHORTFALL, "the container may use 8 GiB, of which 512 MiB are left",
         "docker run --memory");
  EXPECT_EQ(memory.facts.at("container_bytes"), 8 * kGiB);
  EXPECT_EQ(memory.facts.at("container_free_bytes"), kGiB / 2);
}

TEST_F(DoctorShortfallsTest, AContainerThatIsFullOfCache) {
  write("/proc/meminfo", "MemAvailable: 16777216 kB\n");
  write_memory("", std::to_string(8 * kGiB), 8 * kGiB, 6 * kGiB);
  const Finding memory = named(probe_machine(system_), "memory");
  expect_fine(memory);
  EXPECT_EQ(memory.facts.at("container_free_bytes"), 6 * kGiB);
}

/// That of the lowest limit may have more left than one that others fill.
TEST_F(DoctorShortfallsTest, TheGroupWithTheLeastLeftLimitsMemory) {
  EXPECT_FALSE(group_memory(system_).has_value());
  write("/proc/self/cgroup", "0::/slice/job\n");
  write_memory("slice/job", std::to_string(4 * kGiB), kGiB, 0);
  write_memory("slice", std::to_string(16 * kGiB), 15 * kGiB, kGiB / 2);
  write_memory("", "max", 40 * kGiB, 0);
  const auto memory = group_memory(system_);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->limit_bytes, 16 * kGiB);
  EXPECT_EQ(memory->free_bytes, kGiB + kGiB / 2);
  write_memory("slice", std::to_string(16 * kGiB), 17 * kGiB, 0);  // a limit that was lowered
  EXPECT_EQ(group_memory(system_)->free_bytes, 0U);
}

// ---------------------------------------------------------------------------------------------- limits

TEST_F(DoctorShortfallsTest, FewDescriptors) {
  system_.calls.limit_of = [](int, rlimit* limit) {
    *limit = {256, 256};
    return 0;
  };
  expect(named(probe_limits(system_), "open files"), Status::SHORTFALL, "256", "ulimit -n 4096");
  system_.calls.limit_of = no_limit;
  for (const Finding& each : probe_limits(system_)) expect_fine(each);
}

TEST_F(DoctorShortfallsTest, FewAddresses) {
  system_.calls.limit_of = [](int resource, rlimit* limit) {
    limit->rlim_cur = resource == RLIMIT_AS ? 4 * kGiB : RLIM_INFINITY;
    return 0;
  };
  expect(named(probe_limits(system_), "address space"), Status::SHORTFALL, "4 GiB",
         "ulimit -v unlimited");
}

TEST_F(DoctorShortfallsTest, MemoryThatCannotBePinnedForRdma) {
  system_.calls.limit_of = [](int resource, rlimit* limit) {
    limit->rlim_cur = resource == RLIMIT_MEMLOCK ? 65'536 : RLIM_INFINITY;
    return 0;
  };
  const Finding unneeded = named(probe_limits(system_), "locked memory");
  expect_fine(unneeded);
  EXPECT_THAT(unneeded.text, HasSubstr("no RDMA device"));
  write("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  expect(named(probe_limits(system_), "locked memory"), Status::SHORTFALL, "64 KiB",
         "ulimit -l unlimited");
}

// ---------------------------------------------------------------------------------------------- shared memory

TEST_F(DoctorShortfallsTest, DevShmIsSmall) {
  system_.calls.space_of = [](const char* path, struct statvfs* space) {
    EXPECT_STREQ(path, "/dev/shm");
    *space = {};
    space->f_frsize = 4096;
    space->f_blocks = space->f_bavail = 16'384;  // docker's 64 MiB
    return 0;
  };
  expect(named(probe_shared_memory(system_), "/dev/shm"), Status::SHORTFALL, "64 MiB free",
         "docker run --shm-size");
}

TEST_F(DoctorShortfallsTest, DevShmIsNotThere) {
  system_.calls.space_of = [](const char*, struct statvfs*) {
    errno = ENOENT;
    return -1;
  };
  expect(named(probe_shared_memory(system_), "/dev/shm"), Status::SHORTFALL, "No such file",
         "mount -t tmpfs");
}

TEST_F(DoctorShortfallsTest, HugePagesAreForbidden) {
  system_.calls.advise = [](void*, std::size_t, int) {
    errno = EINVAL;
    return -1;
  };
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [deny] force\n");
  expect(named(probe_shared_memory(system_), "huge pages"), Status::SHORTFALL,
         "(enabled: madvise, shmem_enabled: deny)",
         "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

TEST_F(DoctorShortfallsTest, AKernelWithoutHugePages) {
  system_.calls.advise = [](void*, std::size_t, int) {
    errno = EINVAL;
    return -1;
  };
  expect(named(probe_shared_memory(system_), "huge pages"), Status::SHORTFALL,
         "cannot have them: Invalid argument (enabled: unknown, shmem_enabled: unknown)",
         "Linux 6.1 or newer");
}

TEST_F(DoctorShortfallsTest, MemoryInSmallPieces) {
  system_.calls.advise = [](void*, std::size_t, int) {
    errno = ENOMEM;
    return -1;
  };
  expect(named(probe_shared_memory(system_), "huge pages"), Status::SHORTFALL,
         "Cannot allocate memory", "free memory in pieces of 2 MiB");
}

TEST_F(DoctorShortfallsTest, MemoryFilesAreRefused) {
  system_.calls.make_memory_file = [](const char*, unsigned) {
    errno = EPERM;
    return -1;
  };
  const Findings findings = probe_shared_memory(system_);
  expect(named(findings, "shared memory"), Status::FAILURE, "memfd_create: Operation not permitted",
         "seccomp");
  expect(named(findings, "huge pages"), Status::SHORTFALL, "memfd_create", "see shared memory");
}

/// Nothing falls short, so the advice is for others, and stands in the line.
TEST_F(DoctorShortfallsTest, OthersMemoryMayNotBeRead) {
  write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  system_.calls.read_process = [](pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                                  unsigned long) -> ssize_t {
    errno = EPERM;
    return -1;
  };
  const Findings findings = probe_foreign_memory(system_);
  expect(findings.at(0), Status::ABSENT, "refused (Operation not permitted)", "");
  EXPECT_THAT(findings[0].text,
              AllOf(HasSubstr("yama ptrace_scope: 1"), HasSubstr("nothing is lost"),
                    HasSubstr("sysctl kernel.yama.ptrace_scope=0"), HasSubstr("SYS_PTRACE")));
  system_.calls.read_process = [](pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                                  unsigned long) -> ssize_t {
    errno = ENOSYS;
    return -1;
  };
  expect(probe_foreign_memory(system_).at(0), Status::ABSENT, "CONFIG_CROSS_MEMORY_ATTACH", "");
}

// ---------------------------------------------------------------------------------------------- network

TEST_F(DoctorShortfallsTest, NoLoopback) {
  const Findings findings = probe_network({{.text = "192.0.2.7", .interface = "eth0"}});
  expect(named(findings, "loopback"), Status::FAILURE, "no loopback address", "ip link set lo up");
  expect_fine(named(findings, "network"));
}

TEST_F(DoctorShortfallsTest, OnlyTheLoopback) {
  const Findings findings =
      probe_network({{.text = "127.0.0.1", .is_loopback = true, .interface = "lo"}});
  expect_fine(named(findings, "loopback"));
  expect(named(findings, "network"), Status::ABSENT, "do not reach this one", "");
}

TEST_F(DoctorShortfallsTest, RdmaWithoutUcx) {
  if (why_no_ucx().empty()) GTEST_SKIP() << "UCX can be used here";
  write("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  expect(named(probe_ucx(system_), "UCX"), Status::SHORTFALL, "RDMA devices: mlx5_0",
         "install libucx0");
}

// ---------------------------------------------------------------------------------------------- GPUs

class DoctorNoGpusTest : public DoctorShortfallsTest {
 protected:
  void SetUp() override {
    if (num_gpus() > 0) GTEST_SKIP() << "there are GPUs";
  }
  void write_device(const std::string& address, const std::string& vendor,
                    const std::string& type) const {
    const std::string folder = "/sys/bus/pci/devices/" + address + "/";
    write(folder + "vendor", vendor + "\n");
    write(folder + "class", type + "\n");
  }
  /// Only then is a driver of no use by itself.
  [[nodiscard]] static bool is_built_without_cuda() {
    return detail::gpu_platform().reason_against.find("built without") != std::string::npos;
  }
};

TEST_F(DoctorNoGpusTest, AGpuWithoutADriver) {
  write_device("0000:3b:00.0", "0x10de", "0x030200");
  write_device("0000:af:00.0", "0x10de", "0x030000");
  write_device("0000:af:00.1", "0x10de", "0x040300");  // that one's sound
  write_device("0000:02:00.0", "0x1a03", "0x030000");  // somebody else's
  const Findings findings = probe_devices(system_);
  const Finding gpus = named(findings, "GPUs");
  expect(gpus, Status::SHORTFALL,
         "the PCI bus has 2 of NVIDIA's GPUs (0000:3b:00.0, 0000:af:00.0), and no driver",
         "install NVIDIA's driver");
  EXPECT_THAT(gpus.advice, HasSubstr("docker run --gpus all"));
  EXPECT_EQ(gpus.facts.at("pci").size(), 2U);
  EXPECT_EQ(gpus.facts.at("driver_is_there"), false);
  EXPECT_EQ(gpus.advice.find("CUDA's toolkit") != std::string::npos, is_built_without_cuda());
}

TEST_F(DoctorNoGpusTest, NoGpuAndNoDriver) {
  write_device("0000:02:00.0", "0x1a03", "0x030000");
  const Findings findings = probe_devices(system_);
  expect(named(findings, "GPUs"), Status::ABSENT, "none: ", "");
  EXPECT_THAT(named(findings, "GPUs").advice, IsEmpty());
}

TEST_F(DoctorNoGpusTest, ADriverOfWhichTheLibraryMakesNothing) {
  write_device("0000:3b:00.0", "0x10de", "0x030200");
  write("/proc/driver/nvidia/version", "NVRM version: 550.54\n");
  const Findings findings = probe_devices(system_);
  expect(named(findings, "GPUs"), is_built_without_cuda() ? Status::SHORTFALL : Status::FAILURE,
         "yet NVIDIA's driver is there", is_built_without_cuda() ? "toolkit" : "nvidia-smi");
}

// ---------------------------------------------------------------------------------------------- values

TEST_F(DoctorShortfallsTest, WrongValues) {
  expect(all_reduce_finding("all-reduce, x", "2 workers", {.wrong = "element 3 is 7"}),
         Status::FAILURE, "2 workers: WRONG VALUES: element 3 is 7", "do not train on it");
}

}  // namespace
}  // namespace crossdevice::doctor
