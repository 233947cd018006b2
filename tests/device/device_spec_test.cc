// SPDX-License-Identifier: Apache-2.0
// Device strings: TF's grammar row by row, merging, canonical names.
#include "crossdevice/device/device_spec.h"

#include <limits>
#include <string>
#include <unordered_set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string round_trip(std::string_view text) { return DeviceSpec::from_string(text).to_string(); }

// The text of the ValueError that parsing `text` throws; empty if it parses.
std::string parse_error(std::string_view text) {
  try {
    const DeviceSpec parsed = DeviceSpec::from_string(text);
    ADD_FAILURE() << text << " was taken for " << parsed.to_string();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

struct Row {
  std::string_view input;
  std::string_view expected;
};

TEST(DeviceSpecConformance, D1_AnEmptySpecNamesNothing) {
  EXPECT_EQ(DeviceSpec{}.to_string(), "");
  EXPECT_EQ(round_trip(""), "");
  EXPECT_EQ(DeviceSpec::from_string("").job, std::nullopt);
}

TEST(DeviceSpecConformance, D1_FieldsAreWhatTheyWereSetTo) {
  const DeviceSpec full{
      .job = "j", .replica = 0, .task = 1, .device_type = "CPU", .device_index = 2};
  EXPECT_EQ(full.to_string(), "/job:j/replica:0/task:1/device:CPU:2");
  const DeviceSpec short_one{.device_type = "GPU", .device_index = 0};
  EXPECT_EQ(short_one.to_string(), "/device:GPU:0");
  const DeviceSpec lower_case{.device_type = "gpu", .device_index = 0};
  EXPECT_EQ(lower_case.to_string(), "/device:GPU:0");
  EXPECT_EQ(lower_case, short_one);
}

TEST(DeviceSpecConformance, D1_ToStringOmitsWhatIsAbsentAndWritesAStarForAnAbsentIndex) {
  DeviceSpec d;
  d.job = "foo";
  EXPECT_EQ(d.to_string(), "/job:foo");
  d.task = 3;
  EXPECT_EQ(d.to_string(), "/job:foo/task:3");
  d.device_type = "cpu";
  d.device_index = 0;
  EXPECT_EQ(d.to_string(), "/job:foo/task:3/device:CPU:0");
  d.task = std::nullopt;
  d.replica = 12;
  EXPECT_EQ(d.to_string(), "/job:foo/replica:12/device:CPU:0");
  d.device_type = "gpu";
  d.device_index = 2;
  EXPECT_EQ(d.to_string(), "/job:foo/replica:12/device:GPU:2");
  const DeviceSpec any_gpu{.job = "foo", .replica = 12, .task = 3, .device_type = "GPU"};
  EXPECT_EQ(any_gpu.to_string(), "/job:foo/replica:12/task:3/device:GPU:*");
  EXPECT_EQ((DeviceSpec{.device_index = 3}).to_string(), "");
}

TEST(DeviceSpecConformance, D1_FromStringReadsEveryForm) {
  EXPECT_EQ(round_trip("/job:foo/replica:0"), "/job:foo/replica:0");
  EXPECT_EQ(round_trip("/replica:1/task:0/cpu:0"), "/replica:1/task:0/device:CPU:0");
  EXPECT_EQ(round_trip("/replica:1/task:0/device:CPU:0"), "/replica:1/task:0/device:CPU:0");
  EXPECT_EQ(round_trip("/job:muu/device:GPU:2"), "/job:muu/device:GPU:2");
  EXPECT_EQ(round_trip("/job:muu/gpu:2"), "/job:muu/device:GPU:2");
  const DeviceSpec d = DeviceSpec::from_string("/job:w/replica:1/task:2/device:MyFunnyDevice:3");
  EXPECT_EQ(d.job, "w");
  EXPECT_EQ(d.replica, 1);
  EXPECT_EQ(d.task, 2);
  EXPECT_EQ(d.device_type, "MyFunnyDevice");
  EXPECT_EQ(d.device_index, 3);
}

TEST(DeviceSpecConformance, D1_SeveralDeviceTypesAreRefused) {
  EXPECT_THAT(parse_error("/job:muu/device:GPU:2/cpu:0"),
              AllOf(HasSubstr("Multiple device types"), HasSubstr("/job:muu/device:GPU:2/cpu:0")));
}

TEST(DeviceSpecConformance, D1_MergingLetsEachFieldOfTheArgumentWin) {
  const auto merged = [](const std::string& base, std::string_view dev) {
    return DeviceSpec::from_string(base).make_merged_spec(DeviceSpec::from_string(dev)).to_string();
  };
  EXPECT_EQ(merged("/job:foo/replica:0", "/task:1/device:GPU:2"),
            "/job:foo/replica:0/task:1/device:GPU:2");
  EXPECT_EQ(merged("", "/task:1/cpu:0"), "/task:1/device:CPU:0");
  EXPECT_EQ(merged("/task:1/cpu:0", "/job:boo/device:GPU:0"), "/job:boo/task:1/device:GPU:0");
  EXPECT_EQ(merged("/job:boo/task:1/device:GPU:0", "/job:muu/cpu:2"),
            "/job:muu/task:1/device:CPU:2");
  EXPECT_EQ(merged("/job:muu/task:1/device:CPU:2", "/job:muu/device:MyFunnyDevice:2"),
            "/job:muu/task:1/device:MyFunnyDevice:2");
  // Device scopes nest this way, the inner one winning.
  EXPECT_EQ(merged(merged("/device:GPU:0", "/job:worker"), "/device:CPU:0"),
            "/job:worker/device:CPU:0");
  // A field is a field: the index stays when only the type is named anew.
  EXPECT_EQ(merged("/gpu:1", "/cpu:*"), "/device:CPU:1");
  EXPECT_EQ(merged("/job:a/replica:1/task:2/cpu:3", ""), "/job:a/replica:1/task:2/device:CPU:3");
}

TEST(DeviceSpecConformance, D2_CanonicalNamesHaveTheirPartsInOrder) {
  EXPECT_EQ(round_trip("/job:foo/replica:0"), "/job:foo/replica:0");
  EXPECT_EQ(round_trip("/replica:0/job:foo"), "/job:foo/replica:0");
  EXPECT_EQ(round_trip("/job:foo/replica:0/task:0"), "/job:foo/replica:0/task:0");
  EXPECT_EQ(round_trip("/job:foo/task:0/replica:0"), "/job:foo/replica:0/task:0");
  EXPECT_EQ(round_trip("/device:CPU:0"), "/device:CPU:0");
  EXPECT_EQ(round_trip("/device:GPU:2"), "/device:GPU:2");
  EXPECT_EQ(round_trip("/job:foo/replica:0/task:0/device:GPU:0"),
            "/job:foo/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(round_trip("/gpu:0/task:0/replica:0/job:foo"),
            "/job:foo/replica:0/task:0/device:GPU:0");
}

TEST(DeviceSpecConformance, D2_ErrorsSayWhatIsWrongAndQuoteTheString) {
  EXPECT_THAT(parse_error("/job:j/replica:foo"),
              AllOf(HasSubstr("invalid literal for int 'foo'"), HasSubstr("/job:j/replica:foo")));
  EXPECT_THAT(parse_error("/job:j/task:bar"),
              AllOf(HasSubstr("invalid literal for int 'bar'"), HasSubstr("/job:j/task:bar")));
  EXPECT_THAT(parse_error("/barcpugpu:muu/baz:2"),
              AllOf(HasSubstr("Unknown attribute 'barcpugpu'"), HasSubstr("/barcpugpu:muu/baz:2")));
  EXPECT_THAT(parse_error("/cpu:0/device:GPU:2"),
              AllOf(HasSubstr("Multiple device types"), HasSubstr("/cpu:0/device:GPU:2"),
                    HasSubstr("CPU and GPU")));
}

// The rows of the grammar that were executed in TF.
class DeviceSpecGrammar : public ::testing::TestWithParam<Row> {};

TEST_P(DeviceSpecGrammar, D1_HasTheCanonicalForm) {
  EXPECT_EQ(round_trip(GetParam().input), GetParam().expected);
  EXPECT_EQ(round_trip(GetParam().expected), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    ExecutedRows, DeviceSpecGrammar,
    ::testing::Values(Row{"", ""}, Row{"/cpu:0", "/device:CPU:0"}, Row{"/CPU:0", "/device:CPU:0"},
                      Row{"/cpu:00", "/device:CPU:0"}, Row{"gpu:1", "/device:GPU:1"},
                      Row{"/Gpu:1", "/device:GPU:1"}, Row{"/gpu", "/device:GPU:*"},
                      Row{"/gpu:*", "/device:GPU:*"}, Row{"/device:gpu:0", "/device:GPU:0"},
                      Row{"/device:FOO:1", "/device:FOO:1"},
                      Row{"/task:1/job:w/gpu:3", "/job:w/task:1/device:GPU:3"},
                      Row{"/job:a/job:b", "/job:b"}, Row{"/job:", "/job:"},
                      Row{"/task:-1", "/task:-1"}));

INSTANTIATE_TEST_SUITE_P(
    FurtherRows, DeviceSpecGrammar,
    ::testing::Values(Row{"/", ""}, Row{"//", ""}, Row{"//job:a//cpu:1//", "/job:a/device:CPU:1"},
                      Row{"job:a", "/job:a"}, Row{"/replica:1/replica:2", "/replica:2"},
                      Row{"/task:1/task:2", "/task:2"}, Row{"/tpu:0", "/device:TPU:0"},
                      Row{"/Custom:2", "/device:CUSTOM:2"}, Row{"/EPU", "/device:EPU:*"},
                      Row{"/device:Gpu:0", "/device:Gpu:0"}, Row{"/device:foo:*", "/device:foo:*"},
                      Row{"/device:cpu:*", "/device:CPU:*"}, Row{"/cpu:+3", "/device:CPU:3"},
                      Row{"/task:9223372036854775807", "/task:9223372036854775807"},
                      Row{"/job:a b.c-d", "/job:a b.c-d"}));

class DeviceSpecRefusal : public ::testing::TestWithParam<std::string_view> {};

TEST_P(DeviceSpecRefusal, D1_IsAValueErrorThatQuotesTheString) {
  EXPECT_THAT(parse_error(GetParam()), HasSubstr("\"" + std::string(GetParam()) + "\""));
}

INSTANTIATE_TEST_SUITE_P(ExecutedRows, DeviceSpecRefusal,
                         ::testing::Values("/device:GPU", "/foo:1", "/job:w:1", "/device:GPU:1:2",
                                           "/gpu:0x1", "/replica:x", "/cpu:0/gpu:0"));

INSTANTIATE_TEST_SUITE_P(
    FurtherRows, DeviceSpecRefusal,
    ::testing::Values("/cpu:0/cpu:0", "/device:CPU:0/device:CPU:0", "foo", "/job", "/task",
                      "/replica:", "/task:", "/cpu:", "/device:CPU:", "/device::0", ":", ":1",
                      "/cpu:0:1", "/task:1:2", "/replica:1:2", "/task: 1", "/task:1 ", "/task:+-1",
                      "/task:--1", "/task:+", "/task:1_0", "/task:9223372036854775808",
                      "/replica:*", "/JOB:a", "/Device:CPU:0", "/gpu:0.5", "cpu:0 ", "/:/",
                      "/job:a:b:c:d:e:f"));

TEST(DeviceSpecTest, CompatibleSpecsDifferInNoFieldThatBothHave) {
  const auto compatible = [](std::string_view a, std::string_view b) {
    const DeviceSpec first = DeviceSpec::from_string(a);
    const DeviceSpec second = DeviceSpec::from_string(b);
    EXPECT_EQ(first.is_compatible_with(second), second.is_compatible_with(first)) << a << ' ' << b;
    return first.is_compatible_with(second);
  };
  EXPECT_TRUE(compatible("", "/job:a/replica:1/task:2/cpu:3"));
  EXPECT_TRUE(compatible("/job:a/cpu:*", "/task:1/cpu:0"));
  EXPECT_TRUE(compatible("/job:a/replica:1/task:2/cpu:3", "/job:a/replica:1/task:2/cpu:3"));
  EXPECT_FALSE(compatible("/job:a", "/job:b"));
  EXPECT_FALSE(compatible("/replica:0", "/replica:1"));
  EXPECT_FALSE(compatible("/task:0", "/task:1"));
  EXPECT_FALSE(compatible("/cpu:0", "/gpu:0"));
  EXPECT_FALSE(compatible("/cpu:0", "/cpu:1"));
  EXPECT_TRUE((DeviceSpec{.device_type = "cpu"}).is_compatible_with({.device_type = "CPU"}));
}

TEST(DeviceSpecTest, EqualityAndHashGoByTheCanonicalForm) {
  const DeviceSpec a = DeviceSpec::from_string("/task:1/job:w/gpu:3");
  const DeviceSpec b = DeviceSpec::from_string("/job:w/task:1/device:GPU:3");
  EXPECT_EQ(a, b);
  EXPECT_EQ(std::hash<DeviceSpec>{}(a), std::hash<DeviceSpec>{}(b));
  EXPECT_NE(a, DeviceSpec::from_string("/job:w/task:1/device:GPU:4"));
  const std::unordered_set<DeviceSpec> set{a, b, DeviceSpec{}};
  EXPECT_EQ(set.size(), 2u);
}

TEST(CanonicalizeConformance, VL2_EverySpellingOfTheFirstHostDeviceIsItsFullName) {
  for (const char* spelling : {"", "/device:CPU:0", "/cpu:0", "/CPU:0"}) {
    EXPECT_EQ(canonicalize(spelling), "/job:localhost/replica:0/task:0/device:CPU:0") << spelling;
  }
}

TEST(CanonicalizeConformance, D3_TheDefaultFillsInWhatTheDeviceLeavesOpen) {
  EXPECT_EQ(canonicalize("/cpu:0"), "/job:localhost/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(canonicalize("/job:worker/cpu:0"), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(canonicalize("/job:worker/task:0/cpu:0"), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(canonicalize("/job:worker/task:1", "/gpu:0"),
            "/job:worker/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(canonicalize("/cpu:0", "/job:worker"), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(canonicalize("/job:a/gpu:1", "/job:b/task:3/cpu:2"),
            "/job:a/replica:0/task:3/device:GPU:1");
  EXPECT_EQ(canonicalize("/job:worker"), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(canonicalize("/gpu"), "/job:localhost/replica:0/task:0/device:GPU:0");
}

TEST(CanonicalizeConformance, D3_ATypeThatIsNotAllCapsIsRefused) {
  try {
    const std::string name = canonicalize("/device:MyFunnyDevice:2");
    FAIL() << name;
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'MyFunnyDevice' must be all-caps"),
                                    HasSubstr("/device:MyFunnyDevice:2")));
  }
  EXPECT_EQ(canonicalize("/device:FOO_1:2"), "/job:localhost/replica:0/task:0/device:FOO_1:2");
}

TEST(CanonicalizeConformance, D3_AStringThatIsNoneIsRefusedOnEitherSide) {
  EXPECT_THROW((void)canonicalize("/foo:1"), ValueError);
  EXPECT_THROW((void)canonicalize("/cpu:0", "/foo:1"), ValueError);
}

TEST(CanonicalizeConformance, D3_WithoutJobAndTaskOnlyReplicaZeroAndTheDeviceStay) {
  EXPECT_EQ(canonicalize_without_job_and_task("/job:worker/task:3/gpu:1"),
            "/replica:0/device:GPU:1");
  EXPECT_EQ(canonicalize_without_job_and_task("/replica:4/cpu:2"), "/replica:0/device:CPU:2");
  EXPECT_EQ(canonicalize_without_job_and_task(""), "/replica:0/device:CPU:0");
}

TEST(GetHostForDeviceTest, IsTheFirstHostDeviceUnderTheSameLabels) {
  EXPECT_EQ(get_host_for_device("/job:worker/replica:1/task:2/gpu:3"),
            "/job:worker/replica:1/task:2/device:CPU:0");
  EXPECT_EQ(get_host_for_device("/cpu:5"), "/device:CPU:0");
  EXPECT_EQ(get_host_for_device(""), "/device:CPU:0");
  EXPECT_THROW((void)get_host_for_device("/foo"), ValueError);
}

TEST(LocalDevicesFromNumGpusTest, AreTheGpusOrTheHostWhereThereIsNone) {
  EXPECT_THAT(local_devices_from_num_gpus(0), ElementsAre("/device:CPU:0"));
  EXPECT_THAT(local_devices_from_num_gpus(1), ElementsAre("/device:GPU:0"));
  EXPECT_THAT(local_devices_from_num_gpus(3),
              ElementsAre("/device:GPU:0", "/device:GPU:1", "/device:GPU:2"));
  EXPECT_THROW((void)local_devices_from_num_gpus(-1), ValueError);
}

}  // namespace
}  // namespace crossdevice
