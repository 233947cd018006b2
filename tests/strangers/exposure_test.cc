// SPDX-License-Identifier: Apache-2.0
/// What others of a machine can see of a job: not its secret, wherever it prints; and of its memory nothing that has a name, changes its size or belongs to
/// another user.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/comm/ucx_transport.h"

#include "comm/detail/authentication.h"
#include "comm/detail/tls_channel.h"
#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"

namespace crossdevice::strangers {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSecret = "Zq7!hidden~words_of_this-job.0123456789";

std::string base64(const std::string& bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8U | static_cast<unsigned char>(bytes[i + j]);
    }
    for (int shift = 18; shift >= 0; shift -= 6) text.push_back(kLetters[group >> shift & 63U]);
  }
  return text;
}

/// The ways in which bytes are written: as they are, in hexadecimal digits, in base64.
std::vector<std::string> forms_of(const std::string& bytes) {
  std::string digits;
  for (const char each : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(each));
  std::string upper = digits;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char each) { return static_cast<char>(std::toupper(each)); });
  return {bytes, digits, upper, base64(bytes)};
}

/// Of base64, three groups of letters; by chance they are nowhere.
constexpr std::size_t kTellingBytes = 9;

/// Whether so many bytes of the secret that follow each other are there, in any form.
bool shows(const std::string& text, const std::string& secret) {
  for (std::size_t at = 0; at + kTellingBytes <= secret.size(); ++at) {
    for (const std::string& form : forms_of(secret.substr(at, kTellingBytes))) {
      if (text.find(form) != std::string::npos) return true;
    }
  }
  return false;
}

std::string content_of(const std::filesystem::path& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file, std::ios::binary).rdbuf();
  return bytes.str();
}

/// That neither what the job has written shows the secret, nor what the system tells of any process.
void expect_hidden(const Job& job, const std::string& secret, std::size_t least_files) {
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(job.directory())) {
    if (entry.path().filename() == "secret" || entry.path().filename() == "progress") continue;
    const std::string content = content_of(entry.path());
    if (!content.empty()) ++num_files;
    EXPECT_FALSE(shows(content, secret)) << entry.path();
  }
  EXPECT_GE(num_files, least_files);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(),
                     [](unsigned char each) { return std::isdigit(each); })) {
      continue;
    }
    const pid_t process = std::stoi(name);
    for (const char* file : {"cmdline", "environ", "comm"}) {
      EXPECT_FALSE(shows(proc_file_of(process, file), secret)) << name << ' ' << file;
    }
  }
}

TEST(ExposureTest, TheSecretWouldBeFound) {
  const std::string secret = kSecret;
  for (std::size_t at = 0; at + kTellingBytes <= secret.size(); ++at) {
    for (const std::string& form : forms_of(secret.substr(at, kTellingBytes))) {
      EXPECT_TRUE(shows("x" + form + "y", kSecret));
    }
  }
  for (const char* before : {"", "a", "ab", "abc"}) {
    EXPECT_TRUE(shows(base64(before + secret), kSecret)) << before;
    EXPECT_TRUE(shows(base64(before + secret.substr(7, 15)), kSecret)) << before;
  }
  EXPECT_FALSE(shows("something else", kSecret));
}

/// How the workers of a job talk to each other.
enum class Way { SHARED_MEMORY, TCP, TLS, UCX };

const char* name_of(Way way) {
  switch (way) {
    case Way::SHARED_MEMORY:
      return "InSharedMemory";
    case Way::TCP:
      return "OverTcp";
    case Way::TLS:
      return "OverTls";
    case Way::UCX:
      return "OverUcx";
  }
  return "";
}

std::vector<std::string> variables_of(Way way) {
  if (way == Way::TLS) return {"CROSSDEVICE_TLS=1"};
  if (way == Way::UCX) return {"CROSSDEVICE_TRANSPORT=ucx", "UCX_TLS=tcp,self"};
  return {};
}

/// All that must not be seen of a secret: itself, and what channels are keyed with.
std::vector<std::string> secrets_of(const std::string& secret) {
  const detail::Mac key = detail::authenticate(secret, {detail::kTlsKeyLabel});
  return {secret, {reinterpret_cast<const char*>(key.data()), key.size()}};
}
void expect_all_hidden(const Job& job, const std::string& secret, std::size_t least_files) {
  for (const std::string& each : secrets_of(secret)) expect_hidden(job, each, least_files);
}
void expect_no_secret_in(const std::string& file, const std::string& secret) {
  const std::string content = content_of(file);
  for (const std::string& each : secrets_of(secret)) EXPECT_FALSE(shows(content, each)) << file;
}

class SecretTest : public ::testing::TestWithParam<Way> {};

TEST_P(SecretTest, IsNeitherPrintedNorTracedNorInTheProcessList) {
  if (GetParam() == Way::UCX && !why_no_ucx().empty()) GTEST_SKIP() << why_no_ucx();
  JobOptions options{
      .apart = GetParam() != Way::SHARED_MEMORY, .rebuilds = true, .secret = kSecret};
  options.variables = variables_of(GetParam());
  options.variables.push_back("CROSSDEVICE_LOG_LEVEL=info");
  const std::string traces = ::testing::TempDir() + "strangers_trace_" + std::to_string(::getpid());
  options.variables.push_back("CROSSDEVICE_FLIGHT_RECORD=" + traces + ".record.%p");
  options.variables.push_back("CROSSDEVICE_TRACE=" + traces + ".%r");
  Job job(options);
  ASSERT_TRUE(job.await_rounds(3)) << job.printed();
  std::vector<std::uint16_t> ports;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::uint16_t port : doors_of(job.pid(rank))) ports.push_back(port);
  }
  // UCX believes who comes to its ports, and ends the process on what it does not understand.
  if (GetParam() == Way::UCX) ports = {job.chief_port()};
  (void)flood({.ports = ports, .count = 200}, [] { return false; });
  // Processes of another job with another secret, which hear from the first one's chief why they may not come in.
  const std::string other_secret = "another~secret-of_42.letters!and.then-some";
  JobOptions wrong{.num_workers = 2, .secret = other_secret, .join_seconds = 2};
  wrong.variables = options.variables;
  wrong.variables.back() += ".other";
  wrong.chief_address_of[1] = fmt::format("127.0.0.1:{}", job.chief_port());
  Job stranger(wrong);
  EXPECT_EQ(stranger.wait(), (std::vector<int>{3, 3}));
  EXPECT_THAT(stranger.printed(1), HasSubstr("this worker and the chief hold different secrets"));
  // With TLS it has another key, and does not get as far as to say anything else.
  const char* const refusal = GetParam() == Way::TLS
                                  ? "): it does not hold the secret of this job\n"
                                  : "): this worker and the chief hold different secrets";
  EXPECT_EQ(count_of(refusal, job.printed(0)), 1U) << job.printed(0);
  EXPECT_THAT(job.printed(0), HasSubstr("refused a connection from 127.0.0.1 (port "));
  expect_all_hidden(stranger, other_secret, 2);
  expect_all_hidden(stranger, kSecret, 2);
  expect_all_hidden(job, other_secret, 3);
  expect_all_hidden(job, kSecret, 3);
  job.kill(1);  // of which the others speak
  EXPECT_TRUE(Job::await([&] { return job.epoch(0) == 2 && job.epoch(2) == 2; })) << job.printed();
  EXPECT_TRUE(job.await_rounds(3)) << job.printed();
  expect_all_hidden(job, kSecret, 3);
  EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
  EXPECT_THAT(job.printed(0), HasSubstr("rank 1"));
  expect_all_hidden(job, kSecret, 3);
  EXPECT_TRUE(shows(content_of(job.directory() + "/secret"), kSecret));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(content_of(traces + "." + std::to_string(rank)), HasSubstr("reduce"));
  }
  for (const char* end : {".0", ".1", ".2", ".0.other", ".1.other"}) {
    expect_no_secret_in(traces + end, kSecret);
    expect_no_secret_in(traces + end, other_secret);
    std::filesystem::remove(traces + end);
  }
  // Of those whose member was killed, and of those that may not come in.
  std::size_t num_records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(::testing::TempDir())) {
    const std::string file = entry.path().string();
    if (!file.starts_with(traces + ".record.")) continue;
    EXPECT_THAT(content_of(file), HasSubstr("\"error\": \""));
    expect_no_secret_in(file, kSecret);
    expect_no_secret_in(file, other_secret);
    std::filesystem::remove(file);
    ++num_records;
  }
  EXPECT_EQ(num_records, 4U);
}

INSTANTIATE_TEST_SUITE_P(Jobs, SecretTest,
                         ::testing::Values(Way::SHARED_MEMORY, Way::TCP, Way::TLS, Way::UCX),
                         [](const auto& each) { return std::string(name_of(each.param)); });

/// What a command prints, on both of its outputs.
std::string printed_by(const std::string& command) {
  std::string text;
  std::FILE* const pipe = ::popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> piece{};
  for (std::size_t count = 0; (count = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    text.append(piece.data(), count);
  }
  EXPECT_EQ(::pclose(pipe), 0) << text;
  return text;
}

TEST(ProgramsTest, DoNotPrintTheSecret) {
  const std::string file = ::testing::TempDir() + "exposed_" + std::to_string(::getpid());
  std::ofstream(file) << kSecret;
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  const detail::ReservedPort port;
  const std::string bench = fmt::format("{} -e 1K -n 1 -w 1", CROSSDEVICE_BENCH_PROGRAM);
  for (const char* more : {"", "CROSSDEVICE_TLS=1 "}) {
    const std::string variables =
        fmt::format("CROSSDEVICE_SECRET_FILE={} CROSSDEVICE_LOG_LEVEL=info {}", file, more);
    const std::string worker = fmt::format(
        "{} CROSSDEVICE_NUM_WORKERS=2 CROSSDEVICE_CHIEF_ADDRESS=127.0.0.1:{} CROSSDEVICE_RANK=",
        variables, port.number());
    const std::string of_workers =
        printed_by(fmt::format("{0}1 CROSSDEVICE_HOST_ID=b {1} & {0}0 CROSSDEVICE_HOST_ID=a {1}; "
                               "status=$?; wait $! && exit $status",
                               worker, bench));
    EXPECT_THAT(of_workers, HasSubstr("all_reduce"));
    const std::string of_doctor =
        printed_by(fmt::format("{0} {1} --only machine,environment,launcher,shared-memory,network; "
                               "{0} {1} --json --only environment,launcher; true",
                               variables, CROSSDEVICE_DOCTOR_PROGRAM));
    EXPECT_THAT(of_doctor, HasSubstr("CROSSDEVICE_SECRET_FILE"));
    for (const std::string& each : secrets_of(kSecret)) {
      EXPECT_FALSE(shows(of_workers, each)) << of_workers;
      EXPECT_FALSE(shows(of_doctor, each)) << of_doctor;
    }
  }
  std::filesystem::remove(file);
}

/// Whether a program that it starts has that file open too.
bool is_inherited(pid_t process, const OpenFile& file) {
  const std::string info = proc_file_of(process, fmt::format("fdinfo/{}", file.number));
  const std::size_t at = info.find("flags:");
  return at != std::string::npos && (std::stol(info.substr(at + 6), nullptr, 8) & O_CLOEXEC) == 0;
}

TEST(DescriptorsTest, AreNotInheritedByProgramsThatAWorkerStarts) {
  std::set<std::string> already;  // there before any worker
  for (const OpenFile& each : open_files_of(::getpid())) already.insert(each.target);
  for (const bool apart : {true, false}) {
    Job job({.apart = apart, .rebuilds = true});
    ASSERT_TRUE(job.await_rounds(3)) << job.printed();
    std::vector<Caller> strangers;  // at work with them, too
    for (int rank = 0; rank < 3; ++rank) {
      for (const std::uint16_t port : doors_of(job.pid(rank))) {
        strangers.emplace_back(Where{.port = port});
      }
    }
    job.kill(2);
    EXPECT_TRUE(Job::await([&] { return job.epoch(0) == 2 && job.epoch(1) == 2; }))
        << job.printed();
    for (const int rank : {0, 1}) {
      std::size_t num_sockets = 0;
      for (const OpenFile& each : open_files_of(job.pid(rank))) {
        if (each.number <= STDERR_FILENO || already.contains(each.target)) continue;
        num_sockets += each.target.starts_with("socket:") ? 1U : 0U;
        EXPECT_FALSE(is_inherited(job.pid(rank), each)) << rank << ' ' << each.target;
      }
      EXPECT_GE(num_sockets, 2U);
    }
    EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
  }
}

// ---------------------------------------------------------------------------------------------- segments

/// What two processes may share of one's address space: files that are mapped so that writes go to them.
struct SharedMapping {
  std::string range;  // of addresses
  std::string name;
};

std::vector<SharedMapping> shared_mappings_of(pid_t process) {
  std::vector<SharedMapping> found;
  std::istringstream lines(proc_file_of(process, "maps"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string range;
    std::string rights;
    std::string skipped;
    words >> range >> rights >> skipped >> skipped >> skipped;
    std::string name;
    std::getline(words >> std::ws, name);
    if (rights.size() == 4 && rights[3] == 's' && !name.ends_with("/progress")) {
      found.push_back({range, name});
    }
  }
  return found;
}

std::set<std::string> entries_of(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    names.insert(entry.path().filename());
  }
  return names;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Of these; nothing where it is no memory file, which have seals.
std::optional<int> seals_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  // What the seals promise.
  EXPECT_EQ(::ftruncate(fd, 0), -1) << path;
  EXPECT_EQ(errno, EPERM) << path;
  EXPECT_EQ(::ftruncate(fd, off_t{1} << 40), -1) << path;
  ::close(fd);
  return seals < 0 ? std::nullopt : std::optional<int>(seals & kSeals);
}

TEST(SegmentsTest, HaveNoNameAndKeepTheirSize) {
  const std::set<std::string> before = entries_of("/dev/shm");
  Job job({.apart = false, .num_elements = 1U << 20U});
  ASSERT_TRUE(job.await_rounds(3)) << job.printed();
  for (const std::string& each : entries_of("/dev/shm")) {
    EXPECT_THAT(each, Not(HasSubstr("crossdevice"))) << before.contains(each);
  }
  std::size_t num_sealed = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<SharedMapping> mappings = shared_mappings_of(job.pid(rank));
    EXPECT_GE(mappings.size(), 3U);  // the group's, its own segment, those of the others
    for (const SharedMapping& each : mappings) {
      EXPECT_THAT(each.name, StartsWith("/memfd:crossdevice")) << each.range;
      EXPECT_THAT(each.name, HasSubstr(" (deleted)"));
      const std::string path = fmt::format("/proc/{}/map_files/{}", job.pid(rank), each.range);
      if (::access(path.c_str(), F_OK) != 0) continue;  // root alone may look
      EXPECT_EQ(seals_of(path), kSeals) << each.name;
      ++num_sealed;
    }
    for (const OpenFile& each : open_files_of(job.pid(rank))) {
      if (!each.target.starts_with("/memfd:")) continue;
      EXPECT_EQ(seals_of(fmt::format("/proc/{}/fd/{}", job.pid(rank), each.number)), kSeals);
      ++num_sealed;
    }
  }
  EXPECT_GE(num_sealed, 3U);
  EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
}

TEST(SegmentsTest, AreNotForAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  constexpr int kNobody = 65534;
  Job job({.apart = false});
  ASSERT_TRUE(job.await_rounds(3)) << job.printed();
  std::vector<std::string> segments;
  for (int rank = 0; rank < 3; ++rank) {
    for (const OpenFile& each : open_files_of(job.pid(rank))) {
      if (each.target.starts_with("/memfd:")) {
        segments.push_back(fmt::format("/proc/{}/fd/{}", job.pid(rank), each.number));
      }
    }
  }
  ASSERT_THAT(segments, Not(IsEmpty()));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresgid(kNobody, kNobody, kNobody) != 0 ||
        ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(2);
    }
    for (const std::string& each : segments) {
      if (::open(each.c_str(), O_RDONLY) >= 0 || errno != EACCES) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
}

/// It has the secret, so it is no stranger, but nobody's memory is handed to it: all talk over TCP, or fail where that is not to be.
TEST(SegmentsTest, WithAWorkerOfAnotherUserNobodySharesAny) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  constexpr unsigned kNobody = 65534;
  for (const int rank : {0, 1, 2}) {
    Job job({.apart = false, .user_of = {{rank, kNobody}}});
    EXPECT_TRUE(job.await_rounds(3)) << job.printed();
    EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
    JobOptions options{.apart = false, .user_of = {{rank, kNobody}}};
    options.variables = {"CROSSDEVICE_STRICT=1"};
    Job strict(options);
    EXPECT_EQ(strict.wait(), (std::vector<int>{3, 3, 3})) << strict.printed();
    for (int each = 0; each < 3; ++each) {
      const std::string why = fmt::format("rank {}: the memory of rank ", rank);
      const std::string advice =
          "cannot be opened: Permission denied; only processes of one user share memory, and a "
          "worker of another one needs a CROSSDEVICE_HOST_ID of its own";
      EXPECT_THAT(job.printed(each),
                  AllOf(HasSubstr("workers on one machine exchange messages, since they cannot "
                                  "share memory: " +
                                  why),
                        HasSubstr(advice)));
      EXPECT_THAT(strict.printed(each),
                  AllOf(HasSubstr(fmt::format("rank {}: {}", each, why)), HasSubstr(advice)));
    }
  }
}

TEST(SegmentsTest, AWorkerOfAnotherUserTalksOverTcpWithAHostIdOfItsOwn) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  constexpr unsigned kNobody = 65534;
  Job job({.apart = true, .user_of = {{1, kNobody}}});
  EXPECT_TRUE(job.await_rounds(3)) << job.printed();
  EXPECT_EQ(job.finish(), (std::vector<int>{0, 0, 0})) << job.printed();
}

}  // namespace
}  // namespace crossdevice::strangers
