// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/flight_record.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "comm/detail/flight_recorder.h"
#include "support/log_keeper.h"

namespace crossdevice {
namespace {

using ::testing::HasSubstr;

std::uint64_t enqueue(std::uint64_t sequence, std::string_view detail = "") {
  return detail::record_enqueued({.operation = {.kind = "all_reduce",
                                                .sequence = sequence,
                                                .num_values = 2,
                                                .size_bytes = 4096},
                                  .detail = detail,
                                  .size_bytes = 4096,
                                  .dtype = DType::BFLOAT16,
                                  .devices = {"CPU:0", "CPU:1"},
                                  .timeout_seconds = 2.5});
}

FlightEntry entry(std::uint64_t number) {
  for (const FlightEntry& each : flight_record()) {
    if (each.number == number) return each;
  }
  return {};
}

TEST(FlightRecordTest, IsEmptyAtFirst) {
  EXPECT_TRUE(flight_record().empty());
  EXPECT_TRUE(nlohmann::json::parse(flight_record_json()).at("operations").empty());
}

TEST(FlightRecordTest, AnOperationGoesItsWay) {
  const std::uint64_t number = enqueue(7, "to GPU:0");
  EXPECT_EQ(entry(number).state, FlightState::ENQUEUED);
  EXPECT_GT(entry(number).enqueued_ns, 0);
  EXPECT_EQ(entry(number).started_ns, 0);
  detail::record_started(number);
  EXPECT_EQ(entry(number).state, FlightState::STARTED);
  EXPECT_GE(entry(number).started_ns, entry(number).enqueued_ns);
  detail::record_completed(number);
  EXPECT_EQ(entry(number).state, FlightState::COMPLETED);
  EXPECT_GE(entry(number).ended_ns, entry(number).started_ns);
  EXPECT_EQ(entry(number).detail, "to GPU:0");
}

TEST(FlightRecordTest, WhatEndsBetweenTwoLooksHasStartedToo) {
  const std::uint64_t number = enqueue(1);
  detail::record_completed(number);
  EXPECT_EQ(entry(number).started_ns, entry(number).ended_ns);
  detail::record_started(number);  // too late to mean anything
  EXPECT_EQ(entry(number).state, FlightState::COMPLETED);
}

TEST(FlightRecordTest, AFailureHasItsText) {
  const std::uint64_t number = enqueue(1);
  detail::record_failed(number, "GPU:1 is gone");
  EXPECT_EQ(entry(number).state, FlightState::FAILED);
  EXPECT_EQ(entry(number).error, "GPU:1 is gone");
  EXPECT_EQ(entry(number).started_ns, 0);
}

TEST(FlightRecordTest, OnlyTheLastAreKeptOldestFirst) {
  for (const std::size_t count :
       {kFlightRecordSize - 1, std::size_t{1}, std::size_t{1}, kFlightRecordSize + 7}) {
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < count; ++i) last = enqueue(i + 1);
    const std::vector<FlightEntry> all = flight_record();
    ASSERT_EQ(all.size(), std::min<std::uint64_t>(last, kFlightRecordSize));
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i].number, last - all.size() + 1 + i);
    }
  }
  // What has been written over is not found any more.
  const FlightEntry oldest = flight_record().front();
  detail::record_failed(oldest.number - 1, "nobody");
  for (const FlightEntry& each : flight_record()) EXPECT_NE(each.state, FlightState::FAILED);
}

TEST(FlightRecordTest, AsJson) {
  const std::uint64_t number = enqueue(12, "say \"hello\" \xff");
  detail::record_failed(number, "line\nbreak");
  const nlohmann::json all = nlohmann::json::parse(flight_record_json());
  EXPECT_EQ(all.at("pid"), ::getpid());
  const nlohmann::json& last = all.at("operations").back();
  EXPECT_EQ(last.at("operation"), "all_reduce #12 (2 values, 4 KiB)");
  EXPECT_EQ(last.at("kind"), "all_reduce");
  EXPECT_EQ(last.at("sequence"), 12);
  EXPECT_EQ(last.at("dtype"), "bfloat16");
  EXPECT_EQ(last.at("devices"), (nlohmann::json{"CPU:0", "CPU:1"}));
  EXPECT_EQ(last.at("timeout_seconds"), 2.5);
  EXPECT_EQ(last.at("state"), "failed");
  EXPECT_EQ(last.at("error"), "line\nbreak");
  EXPECT_EQ(last.at("started_ns"), 0);
}

TEST(FlightRecordTest, AFileIsWrittenWholeOrNotAtAll) {
  enqueue(1);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("crossdevice_flight." + std::to_string(::getpid()));
  detail::dump_flight_record(path.string());
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file).at("operations").size(), 1U);
  std::filesystem::remove(path);

  const testing::LogKeeper log;
  detail::dump_flight_record("/nowhere/flight.json");
  EXPECT_THAT(log.texts(), HasSubstr("/nowhere/flight.json"));
}

TEST(FlightRecordTest, WithoutAFileNothingIsWritten) {
  const testing::LogKeeper log;
  detail::dump_flight_record();
  EXPECT_EQ(log.texts(), "");
}

TEST(FlightRecordTest, ThreadsMayWriteAndRead) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (std::size_t i = 0; i < 2000; ++i) {
        const std::uint64_t number = enqueue(i);
        detail::record_started(number);
        detail::record_completed(number);
        if (i % 500 == 0) (void)flight_record();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<FlightEntry> all = flight_record();
  EXPECT_EQ(all.size(), kFlightRecordSize);
  EXPECT_EQ(all.back().number, 8000U);
}

}  // namespace
}  // namespace crossdevice
