// SPDX-License-Identifier: Apache-2.0
// Lines come out whole with the prefix, however the bytes come in.
#include "run/line_prefixer.h"

#include <random>

#include <gtest/gtest.h>

namespace crossdevice::run {
namespace {

constexpr std::size_t kMax = LinePrefixer::kMaxLineBytes;

/// All of `text`, fed in pieces of `size`.
std::string prefixed(const std::string& text, std::size_t size) {
  LinePrefixer prefixer("[2] ");
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    prefixer.feed(std::string_view(text).substr(at, size), out);
  }
  prefixer.finish(out);
  return out;
}

TEST(LinePrefixerTest, EveryLineGetsThePrefix) {
  for (const std::size_t size : {1U, 2U, 3U, 100U}) {
    EXPECT_EQ(prefixed("", size), "");
    EXPECT_EQ(prefixed("\n", size), "[2] \n");
    EXPECT_EQ(prefixed("a\nbc\n\nd\n", size), "[2] a\n[2] bc\n[2] \n[2] d\n");
    EXPECT_EQ(prefixed("a\nlast", size), "[2] a\n[2] last\n");
    EXPECT_EQ(prefixed("\r\n\r", size), "[2] \r\n[2] \r\n");
  }
}

TEST(LinePrefixerTest, NothingLeavesBeforeItsLineEnds) {
  LinePrefixer prefixer("[0] ");
  std::string out;
  prefixer.feed("abc", out);
  EXPECT_EQ(out, "");
  prefixer.feed("d\ne", out);
  EXPECT_EQ(out, "[0] abcd\n");
  prefixer.finish(out);
  prefixer.finish(out);
  EXPECT_EQ(out, "[0] abcd\n[0] e\n");
}

TEST(LinePrefixerTest, BytesPassAsTheyAre) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    if (i != '\n') bytes.push_back(static_cast<char>(i));
  }
  EXPECT_EQ(prefixed(bytes + "\n", 7), "[2] " + bytes + "\n");
}

TEST(LinePrefixerTest, LongLinesAreCut) {
  for (const std::size_t piece : {std::size_t{1000}, kMax - 1, kMax, kMax + 1, 5 * kMax}) {
    const std::string most(kMax, 'x');
    EXPECT_EQ(prefixed(most + "\n", piece), "[2] " + most + "\n") << piece;
    EXPECT_EQ(prefixed(most, piece), "[2] " + most + "\n") << piece;
    EXPECT_EQ(prefixed(most + "y\n", piece), "[2] " + most + "\n[2] y\n") << piece;
    EXPECT_EQ(prefixed(most + most + "y", piece), "[2] " + most + "\n[2] " + most + "\n[2] y\n")
        << piece;
  }
}

TEST(LinePrefixerTest, PiecesDoNotMatter) {
  std::mt19937 random(7);
  std::string text(300'000, ' ');
  for (char& c : text) c = random() % 5000 == 0 ? '\n' : static_cast<char>('a' + random() % 26);
  const std::string whole = prefixed(text, text.size());
  for (const std::size_t size : {1U, 13U, 4096U, 65537U}) EXPECT_EQ(prefixed(text, size), whole);
}

}  // namespace
}  // namespace crossdevice::run
