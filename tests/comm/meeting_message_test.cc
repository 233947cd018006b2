// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/meeting_message.h"

#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

const Epoch kEpoch{7, {0, 2, 5}};

Seek seek() {
  Seek message;
  message.job = 0x1234567890abcdefU;
  message.rank = 2;
  message.epoch = kEpoch;
  message.call = "rebuild(ONLY)";
  message.completed = {6, 1204};
  message.lost = {5, 0};
  message.rouses = "rebuild(ONLY)";
  message.nonce = make_nonce();
  return message;
}

TEST(MeetingMessageTest, WhatIsWrittenIsRead) {
  const Seek sent = seek();
  const Seek got = Seek::decode(sent.encode());
  EXPECT_EQ(got.encode(), sent.encode());
  EXPECT_EQ(got.epoch, kEpoch);
  EXPECT_EQ(got.completed, (Completed{6, 1204}));
  EXPECT_EQ(got.lost, sent.lost);
  EXPECT_EQ(got.rouses, sent.rouses);
  const Found found{.rank = 1, .epoch = kEpoch, .takes_in = true, .mac = {}};
  EXPECT_EQ(Found::decode(found.encode()).epoch, kEpoch);
  EXPECT_TRUE(Found::decode(found.encode()).takes_in);
  const Ballot ballot{3, 4};
  EXPECT_EQ(BallotMessage::decode(BallotMessage{ballot}.encode()).ballot, ballot);
  const Vote vote{ballot, {1, 2}};
  EXPECT_EQ(VoteMessage::decode(VoteMessage{vote}.encode()).vote, vote);
  EXPECT_EQ(PromiseMessage::decode(PromiseMessage{{ballot, vote}}.encode()).promise.vote, vote);
  EXPECT_FALSE(
      PromiseMessage::decode(PromiseMessage{{ballot, std::nullopt}}.encode()).promise.vote);
  const Chosen chosen{kEpoch, 4711, {6, 3}};
  EXPECT_EQ(Chosen::decode(chosen.encode()).port, 4711);
  EXPECT_EQ(Chosen::decode(chosen.encode()).completed, (Completed{6, 3}));
}

TEST(MeetingMessageTest, TheProofIsOfEverything) {
  Seek sent = seek();
  const Nonce challenge = make_nonce();
  sent.mac = sent.expected_mac("secret", challenge);
  EXPECT_TRUE(is_equal(sent.mac, Seek::decode(sent.encode()).expected_mac("secret", challenge)));
  Seek other = sent;
  other.epoch.members.push_back(9);
  EXPECT_FALSE(is_equal(sent.mac, other.expected_mac("secret", challenge)));
  EXPECT_FALSE(is_equal(sent.mac, sent.expected_mac("guess", challenge)));
  EXPECT_FALSE(is_equal(sent.mac, sent.expected_mac("secret", make_nonce())));
  Found found{.rank = 1, .epoch = kEpoch, .takes_in = false, .mac = {}};
  found.mac = found.expected_mac("secret", challenge);
  Found changed = found;
  changed.takes_in = true;
  EXPECT_FALSE(is_equal(found.mac, changed.expected_mac("secret", challenge)));
}

TEST(MeetingMessageTest, MembersThatDoNotAscendAreNoMembers) {
  for (const std::vector<int>& members :
       {std::vector<int>{1, 0}, std::vector<int>{1, 1}, std::vector<int>{-1, 2}}) {
    EXPECT_THROW((void)VoteMessage::decode(VoteMessage{{{1, 0}, members}}.encode()), WireError);
    EXPECT_THROW((void)Chosen::decode(Chosen{{1, members}, 0, {}}.encode()), WireError);
  }
}

TEST(MeetingMessageTest, FromEveryNumberThatIsReadOthersFollow) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  EXPECT_EQ(BallotMessage::decode(BallotMessage{{most, 1}}.encode()).ballot.round, most);
  EXPECT_EQ(Chosen::decode(Chosen{{most, {0}}, 1, {}}.encode()).epoch.number, most);
  for (const std::uint64_t none : {most + 1, ~std::uint64_t{0}}) {
    EXPECT_THROW((void)BallotMessage::decode(BallotMessage{{none, 1}}.encode()), WireError);
    EXPECT_THROW((void)VoteMessage::decode(VoteMessage{{{none, 1}, {0}}}.encode()), WireError);
    EXPECT_THROW((void)Chosen::decode(Chosen{{none, {0}}, 1, {}}.encode()), WireError);
  }
}

TEST(MeetingMessageTest, AnyBytesAreReadOrRefused) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same bytes every time
  std::uniform_int_distribution<int> byte(0, 255);
  const std::string good = seek().encode();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW((void)Seek::decode(std::string_view(good).substr(0, size)), WireError);
  }
  const auto try_all = [](const std::string& bytes) {
    const auto read = [&](auto decode) {
      try {
        decode();
      } catch (const WireError&) {
      }
    };
    read([&] { (void)Seek::decode(bytes); });
    read([&] { (void)Found::decode(bytes); });
    read([&] { (void)PromiseMessage::decode(bytes); });
    read([&] { (void)VoteMessage::decode(bytes); });
    read([&] { (void)BallotMessage::decode(bytes); });
    read([&] { (void)Chosen::decode(bytes); });
  };
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    bytes.resize(static_cast<std::size_t>(byte(random)) % good.size());
    for (int k = 0; k < 4 && !bytes.empty(); ++k) {
      bytes[static_cast<std::size_t>(byte(random)) % bytes.size()] =
          static_cast<char>(byte(random));
    }
    try_all(bytes);
  }
}

}  // namespace
}  // namespace crossdevice::detail
