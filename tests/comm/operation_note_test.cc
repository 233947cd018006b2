// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/operation_note.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

TEST(OperationNoteTest, SaysWhatIsDoneAndWhatWasDoneLast) {
  OperationNote note;
  EXPECT_EQ(note.read(), "");
  note.set("reduce", 11);
  EXPECT_EQ(note.read(), "reduce #11");
  note.clear();
  EXPECT_EQ(note.read(), "no operation since reduce #11");
  note.clear();
  EXPECT_EQ(note.read(), "no operation since reduce #11");
  note.set("all_gather", 12);
  EXPECT_EQ(note.read(), "all_gather #12");
  note.set("a kind that is longer than what is kept of one", 0);
  EXPECT_EQ(note.read(), "a kind that is longer th");
}

TEST(OperationNoteTest, WhoHasNeverDoneAnythingHasNothingBehindIt) {
  OperationNote note;
  note.clear();
  EXPECT_EQ(note.read(), OperationNote::kNone);
}

/// As in a job no sequence comes again: what a reader sees twice is the same state.
TEST(OperationNoteTest, AReaderSeesOneStateOrNone) {
  const std::string even(24, 'a');
  const std::string odd(24, 'b');
  OperationNote note;
  std::atomic<bool> is_over{false};
  std::jthread writer([&] {
    for (std::uint64_t sequence = 1; !is_over; ++sequence) {
      note.set(sequence % 2 == 0 ? even : odd, sequence);
      note.clear();
    }
  });
  const std::string since = std::string(OperationNote::kNone) + " since ";
  for (int num_seen = 0; num_seen < 20'000; ++num_seen) {
    std::string text = note.read();
    while (text.empty()) text = note.read();  // nothing yet, or it goes from one to the next
    if (text.starts_with(since)) text.erase(0, since.size());
    const std::size_t mark = text.find(" #");
    ASSERT_NE(mark, std::string::npos) << text;
    const bool is_even = (text.back() - '0') % 2 == 0;
    EXPECT_EQ(text.substr(0, mark), is_even ? even : odd) << text;
  }
  is_over = true;
}

}  // namespace
}  // namespace crossdevice::detail
