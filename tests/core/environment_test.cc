// SPDX-License-Identifier: Apache-2.0
// Every environment variable has its default, its range and an error that names it; the process reads them once.
#include "crossdevice/core/environment.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/usable_cores.h"

namespace crossdevice {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

using Variables = std::map<std::string, std::string>;
Variables variables;  // what the injected lookup finds

const char* look_up(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

Environment parse(const Variables& values) {
  variables = values;
  return parse_environment(look_up);
}

void expect_error(const char* name, const char* value, const char* message) {
  EXPECT_THAT(
      [&] {
        (void)parse({{name, value}});
      },
      ThrowsMessage<ValueError>(StrEq(message)))
      << name << "=" << value;
}

TEST(ParseEnvironmentTest, UnsetVariablesGiveTheDefaults) {
  const Environment result = parse({});
  EXPECT_EQ(result.cpu_devices, 64);
  EXPECT_GE(result.num_threads, 1);
  EXPECT_EQ(result.default_timeout_seconds, std::nullopt);
  EXPECT_FALSE(result.strict);
  EXPECT_EQ(result.log_level, LogSeverity::WARNING);
}

TEST(ParseEnvironmentTest, EmptyVariablesGiveTheDefaultsToo) {
  const Environment result = parse({{"CROSSDEVICE_CPU_DEVICES", ""},
                                    {"CROSSDEVICE_NUM_THREADS", ""},
                                    {"CROSSDEVICE_DEFAULT_TIMEOUT", ""},
                                    {"CROSSDEVICE_STRICT", ""},
                                    {"CROSSDEVICE_LOG_LEVEL", ""}});
  EXPECT_EQ(result.cpu_devices, 64);
  EXPECT_GE(result.num_threads, 1);
  EXPECT_EQ(result.default_timeout_seconds, std::nullopt);
  EXPECT_FALSE(result.strict);
  EXPECT_EQ(result.log_level, LogSeverity::WARNING);
}

TEST(ParseEnvironmentTest, EveryVariableReachesItsMember) {
  const Environment result = parse({{"CROSSDEVICE_CPU_DEVICES", "8"},
                                    {"CROSSDEVICE_NUM_THREADS", "3"},
                                    {"CROSSDEVICE_DEFAULT_TIMEOUT", "2.5"},
                                    {"CROSSDEVICE_STRICT", "1"},
                                    {"CROSSDEVICE_TRANSPORT", "ucx"},
                                    {"CROSSDEVICE_TLS", "1"},
                                    {"CROSSDEVICE_NCCL_LIBRARY", "/opt/libnccl.so.2"},
                                    {"CROSSDEVICE_FLIGHT_RECORD", "/tmp/flight.%p.json"},
                                    {"CROSSDEVICE_LOG_LEVEL", "failure"}});
  EXPECT_EQ(result.transport, "ucx");
  EXPECT_TRUE(result.tls);
  EXPECT_EQ(result.nccl_library, "/opt/libnccl.so.2");
  EXPECT_EQ(result.flight_record, "/tmp/flight.%p.json");
  EXPECT_EQ(result.cpu_devices, 8);
  EXPECT_EQ(result.num_threads, 3);
  EXPECT_EQ(result.default_timeout_seconds, 2.5);
  EXPECT_TRUE(result.strict);
  EXPECT_EQ(result.log_level, LogSeverity::FAILURE);
}

TEST(ParseEnvironmentTest, CountsGoFromOneTo4096) {
  EXPECT_EQ(parse({{"CROSSDEVICE_CPU_DEVICES", "1"}}).cpu_devices, 1);
  EXPECT_EQ(parse({{"CROSSDEVICE_CPU_DEVICES", "4096"}}).cpu_devices, 4096);
  EXPECT_EQ(parse({{"CROSSDEVICE_NUM_THREADS", "1"}}).num_threads, 1);
  EXPECT_EQ(parse({{"CROSSDEVICE_NUM_THREADS", "4096"}}).num_threads, 4096);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOGICAL_GPUS", "3"}}).logical_gpus, 3);
  for (const std::string name :
       {"CROSSDEVICE_CPU_DEVICES", "CROSSDEVICE_LOGICAL_GPUS", "CROSSDEVICE_NUM_THREADS"}) {
    for (const std::string value : {"0", "4097", "-1", "+4", "abc", "4x", " 4", "4 ", "4.0", "0x10",
                                    "99999999999999999999"}) {
      expect_error(
          name.c_str(), value.c_str(),
          (name + ": expected a whole number from 1 to 4096, got '" + value + "'").c_str());
    }
  }
}

TEST(ParseEnvironmentTest, TimeoutsAreSecondsAndZeroMeansNone) {
  EXPECT_EQ(parse({{"CROSSDEVICE_DEFAULT_TIMEOUT", "120"}}).default_timeout_seconds, 120.0);
  EXPECT_EQ(parse({{"CROSSDEVICE_DEFAULT_TIMEOUT", "1e3"}}).default_timeout_seconds, 1000.0);
  EXPECT_EQ(parse({{"CROSSDEVICE_DEFAULT_TIMEOUT", "0"}}).default_timeout_seconds, std::nullopt);
  for (const std::string value : {"-1", "nan", "inf", "ten", "5s", "1,5", " 5", "1e999"}) {
    expect_error("CROSSDEVICE_DEFAULT_TIMEOUT", value.c_str(),
                 ("CROSSDEVICE_DEFAULT_TIMEOUT: expected a number of seconds, at least 0, got '" +
                  value + "'")
                     .c_str());
  }
}

TEST(ParseEnvironmentTest, TransportsAreTcpAndUcx) {
  EXPECT_EQ(parse({}).transport, "");
  EXPECT_EQ(parse({{"CROSSDEVICE_TRANSPORT", "tcp"}}).transport, "tcp");
  expect_error("CROSSDEVICE_TRANSPORT", "UCX",
               "CROSSDEVICE_TRANSPORT: expected tcp or ucx, got 'UCX'");
}

TEST(ParseEnvironmentTest, TlsIsZeroOrOne) {
  EXPECT_FALSE(parse({}).tls);
  EXPECT_FALSE(parse({{"CROSSDEVICE_TLS", "0"}}).tls);
  expect_error("CROSSDEVICE_TLS", "1.3", "CROSSDEVICE_TLS: expected 0 or 1, got '1.3'");
}

TEST(ParseEnvironmentTest, StrictIsZeroOrOne) {
  EXPECT_FALSE(parse({{"CROSSDEVICE_STRICT", "0"}}).strict);
  EXPECT_TRUE(parse({{"CROSSDEVICE_STRICT", "1"}}).strict);
  expect_error("CROSSDEVICE_STRICT", "yes", "CROSSDEVICE_STRICT: expected 0 or 1, got 'yes'");
  expect_error("CROSSDEVICE_STRICT", "2", "CROSSDEVICE_STRICT: expected 0 or 1, got '2'");
}

TEST(ParseEnvironmentTest, TheOrderOfLaunchesIsAgreedOrTheProgramsOwn) {
  EXPECT_EQ(parse({}).launch_order, "agreed");
  EXPECT_EQ(parse({{"CROSSDEVICE_LAUNCH_ORDER", "agreed"}}).launch_order, "agreed");
  EXPECT_EQ(parse({{"CROSSDEVICE_LAUNCH_ORDER", "program"}}).launch_order, "program");
  expect_error("CROSSDEVICE_LAUNCH_ORDER", "any",
               "CROSSDEVICE_LAUNCH_ORDER: expected agreed or program, got 'any'");
}

TEST(ParseEnvironmentTest, CountersAreOnUnlessTheyAreSwitchedOff) {
  EXPECT_TRUE(parse({}).counters);
  EXPECT_TRUE(parse({{"CROSSDEVICE_COUNTERS", "1"}}).counters);
  EXPECT_FALSE(parse({{"CROSSDEVICE_COUNTERS", "0"}}).counters);
  expect_error("CROSSDEVICE_COUNTERS", "off", "CROSSDEVICE_COUNTERS: expected 0 or 1, got 'off'");
}

TEST(ParseEnvironmentTest, LogLevelsAreTheSeveritiesAndNone) {
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG_LEVEL", "info"}}).log_level, LogSeverity::INFO);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG_LEVEL", "warning"}}).log_level, LogSeverity::WARNING);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG_LEVEL", "failure"}}).log_level, LogSeverity::FAILURE);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG_LEVEL", "none"}}).log_level, std::nullopt);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG", "info"}}).log_level, LogSeverity::INFO);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG", "info"}, {"CROSSDEVICE_LOG_LEVEL", ""}}).log_level,
            LogSeverity::INFO);
  EXPECT_EQ(parse({{"CROSSDEVICE_LOG", "info"}, {"CROSSDEVICE_LOG_LEVEL", "failure"}}).log_level,
            LogSeverity::FAILURE);
  expect_error("CROSSDEVICE_LOG", "all",
               "CROSSDEVICE_LOG: expected info, warning, failure or none, got 'all'");
  expect_error("CROSSDEVICE_LOG_LEVEL", "WARNING",
               "CROSSDEVICE_LOG_LEVEL: expected info, warning, failure or none, got 'WARNING'");
  expect_error("CROSSDEVICE_LOG_LEVEL", "3",
               "CROSSDEVICE_LOG_LEVEL: expected info, warning, failure or none, got '3'");
}

TEST(ParseEnvironmentTest, ThreadsDefaultToTheCoresThatTheProcessMayUse) {
  EXPECT_EQ(static_cast<std::size_t>(parse({}).num_threads), detail::usable_cores().size());
}

// environment() reads once per process, so each of these runs in a fresh one.
class EnvironmentDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EnvironmentDeathTest, ReadsTheProcessOnceAndKeepsIt) {
  EXPECT_EXIT(
      {
        setenv("CROSSDEVICE_CPU_DEVICES", "5", 1);
        const Environment& first = environment();
        setenv("CROSSDEVICE_CPU_DEVICES", "6", 1);
        const Environment& second = environment();
        std::fprintf(stderr, "%d %d %s", first.cpu_devices, second.cpu_devices,
                     &first == &second ? "same" : "different");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^5 5 same$");
}

TEST_F(EnvironmentDeathTest, ABadVariableThrowsUntilItIsCorrected) {
  EXPECT_EXIT(
      {
        setenv("CROSSDEVICE_CPU_DEVICES", "many", 1);
        for (int i = 0; i < 2; ++i) {
          try {
            (void)environment();
          } catch (const ValueError&) {
            std::fputs("error ", stderr);
          }
        }
        setenv("CROSSDEVICE_CPU_DEVICES", "7", 1);
        std::fprintf(stderr, "%d", environment().cpu_devices);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^error error 7$");
}

TEST(ProcessEnvironmentTest, ReadsTheRealVariablesAtEveryCall) {
  const EnvironmentSource source = process_environment();
  EXPECT_EQ(source("CROSSDEVICE_TEST_VARIABLE"), std::nullopt);
  setenv("CROSSDEVICE_TEST_VARIABLE", "a b", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(source("CROSSDEVICE_TEST_VARIABLE"), "a b");
  setenv("CROSSDEVICE_TEST_VARIABLE", "", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(source("CROSSDEVICE_TEST_VARIABLE"), "");
  unsetenv("CROSSDEVICE_TEST_VARIABLE");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(source("CROSSDEVICE_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace crossdevice
