// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tls_channel.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/err.h>

#include "crossdevice/core/error.h"

#include "comm/transport_fixture.h"
#include "support/allocation_counter.h"

namespace crossdevice::detail {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::pattern;

constexpr std::string_view kGreeting = "xdevtcp3";

std::shared_ptr<const TlsKey> key(const std::string& secret = "secret") {
  return TlsKey::make(secret);
}

/// Two channels, and a network of any grain between them.
class Pair {
 public:
  explicit Pair(std::shared_ptr<const TlsKey> of_dialler = key(),
                std::shared_ptr<const TlsKey> of_listener = key(), std::size_t grain = 1 << 20)
      : dialler(std::move(of_dialler), TlsChannel::Role::DIALLER, kGreeting),
        listener(std::move(of_listener), TlsChannel::Role::LISTENER, kGreeting),
        grain_(grain) {}

  /// What one has to say, as far as there is room. Whether anything was.
  bool carry(TlsChannel& from, TlsChannel& to) {
    bool has_moved = false;
    while (!from.outgoing().empty()) {
      const std::span<std::byte> room = to.room();
      const std::size_t size = std::min({from.outgoing().size(), room.size(), grain_});
      if (size == 0) break;
      std::memcpy(room.data(), from.outgoing().data(), size);
      carried.append(reinterpret_cast<const char*>(room.data()), size);
      from.drop_outgoing(size);
      to.take_in(size);
      has_moved = true;
      if (!to.is_established()) break;  // it looks at each piece
    }
    return has_moved;
  }
  void shake_hands() {
    for (int i = 0; i < 10000 && !(dialler.is_established() && listener.is_established()); ++i) {
      dialler.shake_hands();
      carry(dialler, listener);
      listener.shake_hands();
      carry(listener, dialler);
    }
    carry(dialler, listener);
  }
  void begin_bulk() {
    dialler.set_buffer_bytes(std::size_t{66} << 10);
    listener.set_buffer_bytes(std::size_t{66} << 10);
  }
  /// All of `bytes`, in reads of at most `piece` bytes.
  Bytes transfer(TlsChannel& from, TlsChannel& to, const Bytes& bytes, std::size_t piece) {
    Bytes came(bytes.size());
    std::size_t num_written = 0;
    std::size_t num_read = 0;
    for (bool has_moved = true; has_moved && num_read < bytes.size();) {
      const std::size_t count = from.write({}, std::span(bytes).subspan(num_written));
      num_written += count;
      has_moved = count != 0;
      has_moved = carry(from, to) || has_moved;
      for (;;) {
        const std::span<std::byte> left = std::span(came).subspan(num_read);
        const std::size_t size = to.read(left.first(std::min(piece, left.size())));
        if (size == 0) break;
        num_read += size;
        has_moved = true;
      }
    }
    EXPECT_EQ(num_read, bytes.size());
    return came;
  }

  TlsChannel dialler;
  TlsChannel listener;
  std::string carried;

 private:
  std::size_t grain_;
};

template <class Work>
TlsTrouble trouble_of(Work work) {
  try {
    work();
  } catch (const TlsError& error) {
    return error.trouble();
  }
  return TlsTrouble::NONE;
}

/// The other side's words, put into a channel as they are.
void put(TlsChannel& channel, std::string_view bytes) {
  const std::span<std::byte> room = channel.room();
  ASSERT_GE(room.size(), bytes.size());
  std::memcpy(room.data(), bytes.data(), bytes.size());
  channel.take_in(bytes.size());
}

TEST(TlsChannelTest, ADiallerMayHearBeforeItSpeaks) {
  Pair pair;
  pair.carry(pair.listener, pair.dialler);
  pair.shake_hands();
  EXPECT_TRUE(pair.dialler.is_established());
  EXPECT_TRUE(pair.listener.is_established());
}

TEST(TlsChannelTest, BothSidesAgreeWhateverTheGrain) {
  for (const std::size_t grain : {std::size_t{1}, std::size_t{7}, std::size_t{100000}}) {
    Pair pair(key(), key(), grain);
    pair.shake_hands();
    EXPECT_TRUE(pair.dialler.is_established()) << grain;
    EXPECT_TRUE(pair.listener.is_established()) << grain;
  }
}

TEST(TlsChannelTest, MessagesOfAllSizesBothWays) {
  for (const bool is_bulk : {false, true}) {
    for (const std::size_t size : {1U, 21U, 4000U, 4096U, 16383U, 16384U, 16385U, 1000003U}) {
      Pair pair(key(), key(), 3001);
      pair.shake_hands();
      if (is_bulk) pair.begin_bulk();
      const Bytes there = pattern(size, 1);
      const Bytes back = pattern(size, 2);
      EXPECT_TRUE(pair.transfer(pair.dialler, pair.listener, there, 1000) == there) << size;
      EXPECT_TRUE(pair.transfer(pair.listener, pair.dialler, back, 1 << 20) == back) << size;
    }
  }
}

TEST(TlsChannelTest, AHeadAndItsPayloadTravelInOneRecord) {
  Pair pair;
  pair.shake_hands();
  pair.begin_bulk();
  const Bytes head = pattern(104, 1);
  const Bytes payload = pattern(1000, 2);
  EXPECT_EQ(pair.dialler.write(head, payload), 1104U);
  EXPECT_LT(pair.dialler.outgoing().size(), 1104U + 30U);
  pair.carry(pair.dialler, pair.listener);
  Bytes came(1104);
  EXPECT_EQ(pair.listener.read(came), 1104U);
  EXPECT_TRUE(std::equal(head.begin(), head.end(), came.begin()));
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), came.begin() + 104));
}

TEST(TlsChannelTest, NothingOfItIsToBeReadOnTheWay) {
  Pair pair;
  pair.shake_hands();
  const std::string words = "what nobody else may read";
  Bytes bytes(words.size());
  std::memcpy(bytes.data(), words.data(), words.size());
  EXPECT_TRUE(pair.transfer(pair.dialler, pair.listener, bytes, 100) == bytes);
  EXPECT_EQ(pair.carried.find("nobody"), std::string::npos);
}

TEST(TlsChannelTest, AnotherSecretIsRefusedOnBothSides) {
  Pair pair(key("secret"), key("another"));
  pair.dialler.shake_hands();
  pair.carry(pair.dialler, pair.listener);
  EXPECT_EQ(trouble_of([&] { pair.listener.shake_hands(); }), TlsTrouble::OTHER_SECRET);
  pair.carry(pair.listener, pair.dialler);
  EXPECT_EQ(trouble_of([&] {
              pair.dialler.shake_hands();
              pair.carry(pair.listener, pair.dialler);
              pair.dialler.shake_hands();
            }),
            TlsTrouble::OTHER_SECRET);
  EXPECT_FALSE(pair.dialler.is_established());
  EXPECT_FALSE(pair.listener.is_established());
  EXPECT_EQ(ERR_peek_error(), 0U);  // the program's list is as it was
}

TEST(TlsChannelTest, WithoutASecretThereIsNoKey) {
  try {
    (void)TlsKey::make("");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CROSSDEVICE_TLS=1 needs a secret"));
  }
}

TEST(TlsChannelTest, OneWithoutTlsIsRecognised) {
  TlsChannel dialler(key(), TlsChannel::Role::DIALLER, kGreeting);
  EXPECT_FALSE(dialler.shake_hands());
  EXPECT_FALSE(dialler.outgoing().empty());  // it speaks at once
  EXPECT_TRUE(is_tls({reinterpret_cast<const char*>(dialler.outgoing().data()), 8}));
  put(dialler, "xdev");
  EXPECT_FALSE(dialler.shake_hands());
  put(dialler, "tcp3 and so on");
  EXPECT_EQ(trouble_of([&] { dialler.shake_hands(); }), TlsTrouble::OTHER_SIDE_IS_PLAIN);
  TlsChannel listener(key(), TlsChannel::Role::LISTENER, kGreeting);
  EXPECT_TRUE(is_tls({reinterpret_cast<const char*>(listener.outgoing().data()), 8}));
  put(listener, "xdevtcp3");
  EXPECT_EQ(trouble_of([&] { listener.shake_hands(); }), TlsTrouble::OTHER_SIDE_IS_PLAIN);
  TlsChannel elsewhere(key(), TlsChannel::Role::DIALLER, kGreeting);
  put(elsewhere, "SSH-2.0-OpenSSH_9.2");
  EXPECT_EQ(trouble_of([&] { elsewhere.shake_hands(); }), TlsTrouble::BROKEN);
}

TEST(TlsChannelTest, AChangedByteEndsIt) {
  Pair pair;
  pair.shake_hands();
  EXPECT_EQ(pair.dialler.write({}, pattern(100, 1)), 100U);
  std::string record(reinterpret_cast<const char*>(pair.dialler.outgoing().data()),
                     pair.dialler.outgoing().size());
  record[50] = static_cast<char>(record[50] ^ 1);
  put(pair.listener, record);
  Bytes came(100, std::byte{0xEE});
  EXPECT_EQ(trouble_of([&] { (void)pair.listener.read(came); }), TlsTrouble::BROKEN);
  EXPECT_TRUE(came == Bytes(100, std::byte{0xEE}));
  EXPECT_EQ(trouble_of([&] { (void)pair.listener.read(came); }), TlsTrouble::BROKEN);
}

TEST(TlsChannelTest, ARecordedRecordIsNotTakenTwice) {
  Pair pair;
  pair.shake_hands();
  EXPECT_EQ(pair.dialler.write({}, pattern(100, 1)), 100U);
  const std::string record(reinterpret_cast<const char*>(pair.dialler.outgoing().data()),
                           pair.dialler.outgoing().size());
  put(pair.listener, record);
  Bytes came(100);
  EXPECT_EQ(pair.listener.read(came), 100U);
  put(pair.listener, record);
  EXPECT_EQ(trouble_of([&] { (void)pair.listener.read(came); }), TlsTrouble::BROKEN);
}

TEST(TlsChannelTest, AnEndIsToldFromACut) {
  Pair pair;
  pair.shake_hands();
  Bytes came(100);
  EXPECT_EQ(pair.dialler.write({}, pattern(100, 1)), 100U);
  put(pair.listener, {reinterpret_cast<const char*>(pair.dialler.outgoing().data()), 60});
  EXPECT_EQ(pair.listener.read(came), 0U);  // nothing of a record before all of it is there
  EXPECT_FALSE(pair.listener.has_ended());
  EXPECT_FALSE(pair.listener.has_input());
  pair.dialler.drop_outgoing(60);
  pair.carry(pair.dialler, pair.listener);
  EXPECT_EQ(pair.listener.read(came), 100U);
  pair.dialler.end();
  pair.carry(pair.dialler, pair.listener);
  EXPECT_EQ(pair.listener.read(came), 0U);
  EXPECT_TRUE(pair.listener.has_ended());
  put(pair.listener, "more");  // nothing is behind an end
  EXPECT_FALSE(pair.listener.has_input());
}

TEST(TlsChannelTest, AFailureOfTheOtherSideIsNoEnd) {
  Pair pair;
  pair.shake_hands();
  Bytes came(100);
  put(pair.listener, std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x'));
  EXPECT_EQ(trouble_of([&] { (void)pair.listener.read(came); }), TlsTrouble::BROKEN);
  EXPECT_TRUE(pair.carry(pair.listener, pair.dialler));  // an alert
  EXPECT_EQ(trouble_of([&] { (void)pair.dialler.read(came); }), TlsTrouble::BROKEN);
  EXPECT_FALSE(pair.dialler.has_ended());
}

/// OpenSSL would take memory for what is announced.
TEST(TlsChannelTest, WhoAnnouncesALargeHelloIsRefusedBeforeItComes) {
  TlsChannel listener(key(), TlsChannel::Role::LISTENER, kGreeting);
  const std::string hello("\x16\x03\x01\x40\x00\x01\x02\x00\x00", 9);
  put(listener, hello.substr(0, 8));
  EXPECT_FALSE(listener.shake_hands());
  put(listener, hello.substr(8));
  EXPECT_EQ(trouble_of([&] { listener.shake_hands(); }), TlsTrouble::BROKEN);
}

TEST(TlsChannelTest, WhoStallsInTheHandshakeCostsLessThanItsPlaceAllows) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer has the heap";
  constexpr std::size_t kStrangers = 100;
  TlsChannel dialler(key(), TlsChannel::Role::DIALLER, kGreeting);
  dialler.shake_hands();
  const std::string hello(reinterpret_cast<const char*>(dialler.outgoing().data()),
                          dialler.outgoing().size());
  const auto of_all = key();
  std::vector<std::unique_ptr<TlsChannel>> strangers;
  const std::size_t before = ::mallinfo2().uordblks;
  for (std::size_t i = 0; i < kStrangers; ++i) {
    strangers.push_back(
        std::make_unique<TlsChannel>(of_all, TlsChannel::Role::LISTENER, kGreeting));
    put(*strangers.back(), hello);
    EXPECT_FALSE(strangers.back()->shake_hands());
  }
  EXPECT_LT((::mallinfo2().uordblks - before) / kStrangers, std::size_t{64} << 10);
}

TEST(TlsChannelTest, KeysAreChangedInTime) {
  const auto often = TlsKey::make("secret", 3);
  Pair pair(often, often);
  pair.shake_hands();
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Bytes bytes = pattern(50, i);
    const std::size_t before = pair.carried.size();
    EXPECT_TRUE(pair.transfer(pair.dialler, pair.listener, bytes, 100) == bytes);
    const std::size_t size = pair.carried.size() - before;
    // The change travels before its record.
    EXPECT_EQ(size > 50 + 22, i != 0 && i % 3 == 0) << i;
  }
}

}  // namespace
}  // namespace crossdevice::detail
