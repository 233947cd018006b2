// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_places.h"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <list>
#include <string>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using Place = StrangerPlaces::Place;
using std::chrono::milliseconds;

constexpr milliseconds kStay{100};
/// A socket of which the system says nothing.
constexpr int kUnknown = -1;
const StrangerPlaces::Clock::time_point kNow = StrangerPlaces::Clock::now();

class StrangerPlacesTest : public ::testing::Test {
 protected:
  Place& enter(const std::string& address, int at, milliseconds stay = kStay) {
    return taken_.emplace_back(all_, asio::ip::make_address(address), begin_ + milliseconds(at),
                               stay);
  }
  /// Whose turn it is, counted from 0; it goes.
  std::ptrdiff_t send_away() {
    const auto chosen = next_to_go(taken_, [](const Place& each) -> const Place& { return each; });
    const std::ptrdiff_t index = std::distance(taken_.begin(), chosen);
    taken_.erase(chosen);
    return index;
  }

  StrangerPlaces all_;  // outlives taken_
  std::list<Place> taken_;
  const StrangerPlaces::Clock::time_point begin_ = StrangerPlaces::Clock::now();
};

TEST_F(StrangerPlacesTest, OfOneAddressGoesWhoseStayIsOverFirst) {
  enter("10.0.0.1", 0);
  enter("10.0.0.1", 1, milliseconds(50));
  enter("10.0.0.1", 2);
  EXPECT_EQ(send_away(), 1);
  EXPECT_EQ(send_away(), 0);
  EXPECT_EQ(send_away(), 0);
}

TEST_F(StrangerPlacesTest, AnAddressCrowdsOutItselfHoweverLongOthersAreThere) {
  enter("10.0.0.1", 0);
  for (int i = 0; i < 10; ++i) {
    enter("10.0.0.2", 1000 + i);
    enter("10.0.0.2", 1000 + i);
    EXPECT_EQ(send_away(), 1) << "who came first of the second address";
  }
}

TEST_F(StrangerPlacesTest, AllOfOneNetworkOfIpv6AreOneAddress) {
  enter("2001:db8::1", 0);
  Place& other = enter("2001:db8:0:1::1", 0);
  Place& beside = enter("2001:db8::ffff:0:0:2", 1);
  EXPECT_EQ(beside.num_beside(), 2U);
  EXPECT_EQ(other.num_beside(), 1U);
  EXPECT_EQ(send_away(), 0);
  EXPECT_EQ(beside.num_beside(), 1U);
}

TEST_F(StrangerPlacesTest, AnIpv4AddressIsTheSameOnSocketsOfBoth) {
  enter("192.0.2.1", 0);
  EXPECT_EQ(enter("::ffff:192.0.2.1", 0).num_beside(), 2U);
  EXPECT_EQ(enter("::ffff:192.0.2.2", 0).num_beside(), 1U);
}

TEST_F(StrangerPlacesTest, APlaceThatIsMovedIsTakenOnce) {
  const asio::ip::address one = asio::ip::make_address("10.0.0.1");
  const asio::ip::address other = asio::ip::make_address("10.0.0.2");
  Place first(all_, one, begin_, kStay);
  Place second(all_, other, begin_, milliseconds(50));
  Place third(std::move(second));
  EXPECT_EQ(third.num_beside(), 1U);
  first = std::move(third);
  EXPECT_EQ(first.num_beside(), 1U);
  EXPECT_EQ(first.until(), begin_ + milliseconds(50));
  EXPECT_EQ(Place(all_, one, begin_, kStay).num_beside(), 1U);
  EXPECT_EQ(Place(all_, other, begin_, kStay).num_beside(), 2U);
}

TEST(StayTest, WhoIsNearHasTheLeast) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io,
                                   asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  asio::ip::tcp::socket caller(io);
  caller.connect(acceptor.local_endpoint());
  asio::ip::tcp::socket taken_in = acceptor.accept();
  const StrangerPlaces all;
  EXPECT_EQ(all.stay_of(taken_in.native_handle(), false, kNow), StrangerPlaces::kLeastStay);
  EXPECT_EQ(all.stay_of(kUnknown, true, kNow), StrangerPlaces::kLeastStay);
}

TEST(StayTest, WhereLooksComeLateItIsLongerForSomeTime) {
  StrangerPlaces all;
  all.note_delay(milliseconds(32), kNow);
  EXPECT_EQ(all.stay_of(kUnknown, false, kNow), milliseconds(128));
  EXPECT_EQ(all.stay_of(kUnknown, true, kNow), milliseconds(256));
  const auto later = kNow + StrangerPlaces::kHalfLife;
  EXPECT_EQ(all.stay_of(kUnknown, true, later), milliseconds(128));
  all.note_delay(milliseconds(1), later);
  EXPECT_EQ(all.stay_of(kUnknown, true, later), milliseconds(128));
  all.note_delay(milliseconds(64), later);
  EXPECT_EQ(all.stay_of(kUnknown, true, later), milliseconds(512));
  EXPECT_EQ(all.stay_of(kUnknown, true, later + std::chrono::hours(1)), StrangerPlaces::kLeastStay);
}

TEST(StayTest, WhoWasStoppedForAnHourIsLateForSomeSeconds) {
  StrangerPlaces all;
  all.note_delay(std::chrono::hours(1), kNow);
  EXPECT_EQ(all.stay_of(kUnknown, false, kNow), StrangerPlaces::kLongestStay);
  EXPECT_EQ(all.stay_of(kUnknown, false, kNow + std::chrono::seconds(3)),
            StrangerPlaces::kLeastStay);
}

}  // namespace
}  // namespace crossdevice::detail
