// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/gradient_list.h, also with the lists that come with the project.
#include "collective/gradient_list.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/program.h"

namespace crossdevice::bench {
namespace {

std::vector<Gradient> parse(const std::string& text) {
  std::istringstream in(text);
  return parse_gradient_list(in, "list.csv");
}

std::string refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const programs::ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(GradientListTest, ReadsNamesAndShapes) {
  const std::vector<Gradient> gradients =
      parse("name,shape,numel\nconv1.weight,64x3x7x7,9408\nbias,10,10\nscale,,1\n");
  ASSERT_EQ(gradients.size(), 3U);
  EXPECT_EQ(gradients[0].name, "conv1.weight");
  EXPECT_EQ(gradients[0].shape, (Shape{64, 3, 7, 7}));
  EXPECT_EQ(gradients[1].shape, (Shape{10}));
  EXPECT_EQ(gradients[2].shape, Shape{});
}

TEST(GradientListTest, TakesWindowsLineEndsAndEmptyLines) {
  EXPECT_EQ(parse("name,shape,numel\r\na,2x2,4\r\n\r\nb,3,3").size(), 2U);
}

TEST(GradientListTest, RefusalsNameTheLineAndTheReason) {
  EXPECT_EQ(refusal("name,numel\n"),
            "list.csv, line 1: expected the header 'name,shape,numel', found 'name,numel'");
  EXPECT_EQ(refusal("name,shape,numel\na,2x2,4\nb,3\n"),
            "list.csv, line 3: expected 3 fields, found 2");
  EXPECT_EQ(refusal("name,shape,numel\na,2xx2,4\n"),
            "list.csv, line 2: '2xx2' is not a shape such as 64x3x7x7");
  EXPECT_EQ(refusal("name,shape,numel\na,2x-2,4\n"),
            "list.csv, line 2: '2x-2' is not a shape such as 64x3x7x7");
  EXPECT_EQ(refusal("name,shape,numel\na,2x2,5\n"),
            "list.csv, line 2: numel is 5, but the shape 2x2 has 4 elements");
  EXPECT_EQ(refusal("name,shape,numel\na,2x2,\n"),
            "list.csv, line 2: numel is , but the shape 2x2 has 4 elements");
  EXPECT_NE(refusal("name,shape,numel\na,4294967296x4294967296,0\n").find("line 2"),
            std::string::npos);
  EXPECT_EQ(refusal("name,shape,numel\n"), "list.csv holds no gradients");
  EXPECT_EQ(refusal(""), "list.csv holds no gradients");
}

TEST(GradientListTest, RefusesAFileThatIsNotThere) {
  EXPECT_THROW((void)read_gradient_list("/nowhere/list.csv"), programs::ArgumentError);
}

TEST(GradientListTest, ReadsEveryListOfTheProject) {
  std::size_t num_lists = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CROSSDEVICE_WORKLOADS_DIR)) {
    if (entry.path().extension() != ".csv") continue;
    ++num_lists;
    EXPECT_FALSE(read_gradient_list(entry.path()).empty()) << entry.path();
  }
  EXPECT_GE(num_lists, 10U);
}

TEST(GradientListTest, ResNet50HasItsKnownSize) {
  const std::vector<Gradient> gradients =
      read_gradient_list(CROSSDEVICE_WORKLOADS_DIR "/resnet50.csv");
  std::int64_t elements = 0;
  for (const Gradient& gradient : gradients) elements += gradient.shape.num_elements();
  EXPECT_EQ(gradients.size(), 161U);
  EXPECT_EQ(elements, 25557032);
}

}  // namespace
}  // namespace crossdevice::bench
