// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/local_addresses.h"

#include <array>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "crossdevice/core/error.h"

#include "comm/environment_map.h"
#include "support/log_keeper.h"
#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<InterfaceAddress> kAll = {
    {"lo", "127.0.0.1", true},       {"eth0", "10.0.0.1", false}, {"eth1", "10.1.0.1", false},
    {"eth0", "10.0.0.9", false},     {"lo", "::1", true},         {"eth0", "fd00::1", false},
    {"bridge", "172.17.0.1", false}, {"same", "10.0.0.1", false}};

TEST(LocalAddressesTest, AllButLoopbackEachOnce) {
  EXPECT_THAT(select_addresses(kAll, ""),
              ElementsAre("10.0.0.1", "10.1.0.1", "10.0.0.9", "fd00::1", "172.17.0.1"));
  EXPECT_THAT(select_addresses({}, ""), IsEmpty());
}

TEST(LocalAddressesTest, NamesNarrowAndOrder) {
  EXPECT_THAT(select_addresses(kAll, "eth0"), ElementsAre("10.0.0.1", "10.0.0.9", "fd00::1"));
  EXPECT_THAT(select_addresses(kAll, "bridge,eth1"), ElementsAre("172.17.0.1", "10.1.0.1"));
}

TEST(LocalAddressesTest, ANameWithoutAnAddressIsAnErrorThatSaysWhichHaveOne) {
  for (const char* names : {"eth", "eth00", "lo", "eth0,", ",eth0", "eth0,,eth1", ",", "eth0 "}) {
    try {
      (void)select_addresses(kAll, names);
      ADD_FAILURE() << names;
    } catch (const ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr("those are: eth0, eth1, bridge, same"));
      EXPECT_THAT(error.what(), HasSubstr(names));
    }
  }
  EXPECT_THROW((void)select_addresses({}, "eth0"), ValueError);
}

TEST(LocalAddressesTest, NcclsNamesAreBeginningsNamesOrExceptions) {
  EXPECT_THAT(select_like_nccl(kAll, "eth"),
              ElementsAre("10.0.0.1", "10.1.0.1", "10.0.0.9", "fd00::1"));
  EXPECT_THAT(select_like_nccl(kAll, "=eth"), IsEmpty());
  EXPECT_THAT(select_like_nccl(kAll, "=bridge,eth1:4711"), ElementsAre("10.1.0.1", "172.17.0.1"));
  EXPECT_THAT(select_like_nccl(kAll, "^bri,same"),
              ElementsAre("10.0.0.1", "10.1.0.1", "10.0.0.9", "fd00::1"));
  EXPECT_THAT(select_like_nccl(kAll, "^=eth0,same,eth"), ElementsAre("10.1.0.1", "172.17.0.1"));
  EXPECT_THAT(select_like_nccl(kAll, "lo"), IsEmpty());
}

TEST(LocalAddressesTest, OursCountsThenNcclsThenGloos) {
  Variables variables{{"CROSSDEVICE_SOCKET_IFNAME", "bridge"},
                      {"NCCL_SOCKET_IFNAME", "eth1"},
                      {"GLOO_SOCKET_IFNAME", "eth0"}};
  EXPECT_THAT(published_of(kAll, source_of(variables)), ElementsAre("172.17.0.1"));
  variables["CROSSDEVICE_SOCKET_IFNAME"] = "";
  EXPECT_THAT(published_of(kAll, source_of(variables)), ElementsAre("10.1.0.1"));
  variables.erase("NCCL_SOCKET_IFNAME");
  EXPECT_THAT(published_of(kAll, source_of(variables)),
              ElementsAre("10.0.0.1", "10.0.0.9", "fd00::1"));
  EXPECT_THAT(published_of(kAll, source_of({})), ElementsAreArray(select_addresses(kAll, "")));
  variables["CROSSDEVICE_SOCKET_IFNAME"] = "nope0";
  EXPECT_THROW((void)published_of(kAll, source_of(variables)), ValueError);
}

// It is not a setting of ours that is wrong.
TEST(LocalAddressesTest, OtherPeoplesNamesThatLeaveNothingAreAsIfUnset) {
  const testing::LogKeeper log;
  const Variables variables{{"NCCL_SOCKET_IFNAME", "=lo"}, {"GLOO_SOCKET_IFNAME", "eth1"}};
  EXPECT_THAT(published_of(kAll, source_of(variables)),
              ElementsAreArray(select_addresses(kAll, "")));
  EXPECT_THAT(log.texts(), HasSubstr("NCCL_SOCKET_IFNAME is \"=lo\": no interface"));
}

TEST(LocalAddressesTest, AWrongNameThatNobodyNeedsIsSaid) {
  const testing::LogKeeper log;
  note_unused_interfaces(kAll, source_of({}));
  note_unused_interfaces(kAll, source_of({{"CROSSDEVICE_SOCKET_IFNAME", "eth0"}}));
  EXPECT_THAT(log.texts(), IsEmpty());
  note_unused_interfaces(kAll, source_of({{"CROSSDEVICE_SOCKET_IFNAME", "nope0"}}));
  EXPECT_THAT(log.texts(),
              AllOf(HasSubstr("\"nope0\" is no interface"), HasSubstr("it is not looked at here")));
}

TEST(LocalAddressesTest, OnlyWhatIsCertainIsElsewhere) {
  for (const char* host : {"192.0.2.7", "10.0.0.2", "fd00::2", "::ffff:192.0.2.7"}) {
    EXPECT_TRUE(is_elsewhere(kAll, host)) << host;
    EXPECT_FALSE(is_elsewhere({}, host)) << host << ": the kernel has said nothing";
  }
  for (const char* host : {"10.0.0.9", "::ffff:10.0.0.9", "fd00::1", "fd00:0::1", "127.0.0.5",
                           "::1", "0.0.0.0", "::", "fe80::1", "a-name", ""}) {
    EXPECT_FALSE(is_elsewhere(kAll, host)) << host;
  }
}

TEST(LocalAddressesTest, WhatTheKernelSaysAreAddresses) {
  bool was_six = false;
  for (const InterfaceAddress& each : interface_addresses()) {
    EXPECT_FALSE(each.interface.empty());
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    const bool is_four = ::inet_pton(AF_INET, each.address.c_str(), bytes.data()) == 1;
    EXPECT_TRUE(is_four || ::inet_pton(AF_INET6, each.address.c_str(), bytes.data()) == 1)
        << each.address;
    EXPECT_FALSE(is_four && was_six) << "IPv4 comes first";
    was_six = was_six || !is_four;
    EXPECT_EQ(each.is_loopback, each.address.starts_with("127.") || each.address == "::1")
        << each.interface << ' ' << each.address;
  }
}

/// Not that it has none: it would tell the others that it is on loopback alone.
TEST(LocalAddressesTest, WhoCannotAskTheKernelSaysSo) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  const testing::WithoutDescriptors none;
  EXPECT_THROW((void)local_addresses(), ResourceExhaustedError);
  EXPECT_THAT(interface_addresses(), IsEmpty());
}

}  // namespace
}  // namespace crossdevice::detail
