// SPDX-License-Identifier: Apache-2.0
#include "run/host_list.h"

#include <array>
#include <fstream>
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "run/arguments.h"
#include "run/forwarded_variables.h"
#include "run/host_job.h"
#include "support/program.h"

namespace crossdevice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// "name/slots" each.
std::vector<std::string> texts(const std::vector<Host>& hosts) {
  std::vector<std::string> all;
  all.reserve(hosts.size());
  for (const Host& host : hosts) all.push_back(host.name + "/" + std::to_string(host.slots));
  return all;
}

std::optional<Arguments> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "crossdevice-run");
  return parse_arguments(static_cast<int>(words.size()), words.data());
}

void expect_refused(const std::function<void()>& body, const char* message) {
  EXPECT_THAT(body, ThrowsMessage<programs::ArgumentError>(HasSubstr(message)));
}

TEST(HostListTest, NamesAddressesAndSlots) {
  EXPECT_THAT(texts(parse_hosts("a:4,b,me@c.example:2,10.0.0.1:256,[fe::1]:3,[::1],::1,a_b-c")),
              ElementsAre("a/4", "b/1", "me@c.example/2", "10.0.0.1/256", "fe::1/3", "::1/1",
                          "::1/1", "a_b-c/1"));
}

TEST(HostListTest, MalformedOnesAreRefused) {
  for (const char* text : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "-oProxyCommand=x",
                           "a b",
                           "a;b",
                           "$x",
                           "a:",
                           ":4",
                           "a:0",
                           "a:-1",
                           "a:1025",
                           "a:4x",
                           "a: 4",
                           "a:99999999999",
                           "[::1",
                           "[::1]4",
                           "[::1]:",
                           "[]:1",
                           "@a",
                           "a@",
                           "a\nb",
                           "a'b",
                           "a`b`"}) {
    expect_refused([&] { (void)parse_hosts(text); }, "--hosts: expected");
  }
}

TEST(HostListTest, AFileWithAHostPerLine) {
  const std::string path = ::testing::TempDir() + "host_list_test_" + std::to_string(::getpid());
  std::ofstream(path) << "# all\n\n  a slots=4 # big\nb:2\r\nc\n\td\tslots=3\n#e\n[::1]:2";
  EXPECT_THAT(texts(read_hostfile(path)), ElementsAre("a/4", "b/2", "c/1", "d/3", "::1/2"));
  for (const char* line : {"a slots=", "a slots=0", "a 4", "a max_slots=4", "a slots = 4", "-x"}) {
    std::ofstream(path) << "a\n" << line << "\n";
    expect_refused([&] { (void)read_hostfile(path); }, "line 2: expected");
  }
  std::ofstream(path) << "# nobody\n";
  expect_refused([&] { (void)read_hostfile(path); }, "names no host");
  ::unlink(path.c_str());
  expect_refused([&] { (void)read_hostfile(path); }, "cannot read");
}

TEST(HostListTest, TheCommandLine) {
  const auto all = parse({"--hosts", "a:4,b:2", "--", "prog"});
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->num_workers, 6);
  const auto some =
      parse({"-n", "5", "--hosts", "a:4,b:2", "-x", "A=[1,2]", "-x", "B=", "--port", "7",
             "--remote-shell", "ssh -p 2222", "--host-silence-seconds", "7.5", "--", "prog"});
  ASSERT_TRUE(some.has_value());
  EXPECT_EQ(some->num_workers, 5);
  EXPECT_EQ(some->port, 7);
  EXPECT_EQ(some->remote_shell, "ssh -p 2222");
  EXPECT_EQ(some->silence.count(), 7.5);
  EXPECT_THAT(some->exported, ElementsAre("A=[1,2]", "B="));
  expect_refused(
      [] {
        (void)parse({"-n", "7", "--hosts", "a:4,b:2", "--", "prog"});
      },
      "the hosts have only 6 slots");
  expect_refused([] { (void)parse({"-n", "1", "--port", "7", "--", "prog"}); }, "needs --hosts");
  expect_refused(
      [] {
        (void)parse({"-n", "1", "--remote-shell", "ssh", "--", "prog"});
      },
      "--remote-shell needs --hosts");
  expect_refused(
      [] {
        (void)parse({"-n", "1", "--host-silence-seconds", "5", "--", "prog"});
      },
      "--host-silence-seconds needs --hosts");
  expect_refused(
      [] {
        (void)parse({"--hosts", "a", "--host-silence-seconds", "0.5", "--", "prog"});
      },
      "--host-silence-seconds");
  for (const char* const option : {"--grace-seconds", "--host-silence-seconds"}) {
    expect_refused(
        [option] {
          (void)parse({"--hosts", "a", option, "nan", "--", "prog"});
        },
        option);
  }
  EXPECT_EQ(parse({"--hosts", "a", "--host-silence-seconds", "0", "--", "prog"})->silence.count(),
            0);
  expect_refused([] { (void)parse({"--hosts", "", "--", "prog"}); }, "--hosts");
  expect_refused(
      [] {
        (void)parse({"--hosts", "a", "--hostfile", "b", "--", "prog"});
      },
      "--hostfile");
  expect_refused([] { (void)parse({"--hosts", "a", "--netns", "1", "--", "prog"}); }, "--netns");
  expect_refused(
      [] {
        (void)parse({"--hosts", "a", "--remote-shell", " ", "--", "prog"});
      },
      "--remote-shell");
}

TEST(ForwardedVariablesTest, OursNcclsAndThoseAskedFor) {
  const std::vector<const char*> environment{"PATH=/bin",    "CROSSDEVICE_LOG_LEVEL=info",
                                             "NCCL_DEBUG=1", "CROSSDEVICE_HOST_ID=here",
                                             "MINE=a=b\nc",  "XNCCL_A=1",
                                             nullptr};
  EXPECT_THAT(forwarded_variables(environment.data(), {"MINE", "NCCL_DEBUG=2", "E="}),
              ElementsAre("CROSSDEVICE_LOG_LEVEL=info", "NCCL_DEBUG=1", "MINE=a=b\nc",
                          "NCCL_DEBUG=2", "E="));
  for (const char* request : {"", "=", "=x", "ABSENT"}) {
    expect_refused([&] { (void)requested_variables(environment.data(), {request}); }, "-x");
  }
  const std::vector<const char*> few{"A=1", "B=2", nullptr};
  EXPECT_THAT(with_variables(few.data(), {"A=3", "C=4", "A=5"}), ElementsAre("B=2", "C=4", "A=5"));
}

TEST(HostJobTest, ArrivesAsItWasSent) {
  HostJob job;
  job.first_rank = 3;
  job.num_local_workers = 2;
  job.num_workers = 9;
  job.grace_seconds = 0.25;
  job.silence_seconds = 3.25;
  job.keeps_going = true;
  job.chief_address = "[::1]:7";
  job.secret = "hush";
  job.directory = "/a b";
  job.variables = {"A=\n:'", "B="};
  job.command = {"p", "", std::string("x\0y", 3)};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string bytes = encode(job) + "next";
  ASSERT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  const HostJob got = receive_host_job(ends[0]);
  EXPECT_EQ(encode(got), encode(job));
  EXPECT_EQ(got.command, job.command);
  EXPECT_EQ(got.grace_seconds, 0.25);
  EXPECT_EQ(got.silence_seconds, 3.25);
  std::array<char, 8> rest{};
  EXPECT_EQ(::read(ends[0], rest.data(), rest.size()), 4);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace crossdevice::run
