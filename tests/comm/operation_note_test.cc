// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/operation_note.h"

#include <atomic>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossdevice::detail {
namespace {

using ::testing::AnyOf;

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

TEST(OperationNoteTest, AReaderSeesOneStateOrNone) {
  OperationNote note;
  std::atomic<bool> is_over{false};
  std::jthread writer([&] {
    while (!is_over) {
      note.set("aaaaaaaaaaaaaaaaaaaaaaaa", 1);
      note.clear();
      note.set("bbbbbbbbbbbbbbbbbbbbbbbb", 2);
      note.clear();
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    EXPECT_THAT(note.read(), AnyOf("", "aaaaaaaaaaaaaaaaaaaaaaaa #1", "bbbbbbbbbbbbbbbbbbbbbbbb #2",
                                   "no operation since aaaaaaaaaaaaaaaaaaaaaaaa #1",
                                   "no operation since bbbbbbbbbbbbbbbbbbbbbbbb #2"));
  }
  is_over = true;
}

}  // namespace
}  // namespace crossdevice::detail
