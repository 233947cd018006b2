// SPDX-License-Identifier: Apache-2.0
/// Tests of collective/report_table.h and collective/report_json.h.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "collective/report_json.h"
#include "collective/report_table.h"

namespace crossdevice::bench {
namespace {

Row make_row(Placement placement) {
  Row row;
  row.test_case.collective = Collective::ALL_REDUCE;
  row.test_case.dtype = DType::FLOAT32;
  row.test_case.op = ReduceOp::SUM;
  row.test_case.devices = Devices{"CPU:0", "CPU:1", "CPU:2", "CPU:3"};
  row.test_case.shapes = {Shape{250000}};
  row.ops = "reduction_to_one_device";
  row.algorithm = "direct";
  row.placement = placement;
  row.time = {.median_us = 500, .p10_us = 400, .p99_us = 900};
  row.wrong = 0;
  row.limit = "in_place_scale";
  row.limit_gbs = 20;
  return row;
}

TEST(ReportTest, JsonHasExactlyTheFieldsOfARow) {
  const nlohmann::json array =
      nlohmann::json::parse(json_report(std::vector<Row>{make_row(Placement::IN_PLACE)}));
  ASSERT_TRUE(array.is_array());
  ASSERT_EQ(array.size(), 1U);
  std::set<std::string> names;
  for (const auto& item : array[0].items()) names.insert(item.key());
  EXPECT_EQ(names, (std::set<std::string>{"op",
                                          "ops",
                                          "algorithm",
                                          "devices",
                                          "workers",
                                          "hosts",
                                          "namespaces",
                                          "rate",
                                          "memory",
                                          "size_bytes",
                                          "dtype",
                                          "redop",
                                          "in_place",
                                          "time_us_median",
                                          "time_us_p10",
                                          "time_us_p99",
                                          "algbw_gbs",
                                          "busbw_gbs",
                                          "wrong",
                                          "traffic_gbs",
                                          "limit",
                                          "limit_gbs",
                                          "percent_of_limit",
                                          "raw_nccl_us_median"}));
}

TEST(ReportTest, JsonHoldsTheFiguresOfTheRow) {
  const nlohmann::json row =
      nlohmann::json::parse(json_report(std::vector<Row>{make_row(Placement::IN_PLACE)}))[0];
  EXPECT_EQ(row["op"], "all_reduce");
  EXPECT_EQ(row["devices"], 4);
  EXPECT_EQ(row["workers"], 1);
  EXPECT_EQ(row["hosts"], 1);
  EXPECT_EQ(row["namespaces"], 0);
  EXPECT_TRUE(row["rate"].is_null());
  EXPECT_EQ(row["memory"], "pool");
  EXPECT_EQ(row["size_bytes"], 1000000);
  EXPECT_EQ(row["dtype"], "float32");
  EXPECT_EQ(row["redop"], "SUM");
  EXPECT_EQ(row["in_place"], true);
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_DOUBLE_EQ(row["time_us_p99"], 900);
  EXPECT_DOUBLE_EQ(row["algbw_gbs"], 2);
  EXPECT_DOUBLE_EQ(row["busbw_gbs"], 3);
  EXPECT_DOUBLE_EQ(row["traffic_gbs"], 16);
  EXPECT_DOUBLE_EQ(row["percent_of_limit"], 80);
}

TEST(ReportTest, WhatWasNotCheckedIsNull) {
  Row row = make_row(Placement::IN_PLACE);
  row.wrong.reset();
  row.test_case.collective = Collective::BROADCAST;
  const nlohmann::json object = nlohmann::json::parse(json_report(std::vector<Row>{row}))[0];
  EXPECT_TRUE(object["wrong"].is_null());
  EXPECT_TRUE(object["redop"].is_null());
}

TEST(ReportTest, WorkersAreNamed) {
  Row row = make_row(Placement::IN_PLACE);
  row.test_case.num_workers = 3;
  row.test_case.memory = MemoryKind::FOREIGN;
  row.placing = {.num_hosts = 2, .num_namespaces = 2, .rate = "200mbit"};
  row.limit.clear();
  row.limit_gbs = 0;
  const nlohmann::json object = nlohmann::json::parse(json_report(std::vector<Row>{row}))[0];
  EXPECT_EQ(object["devices"], 12);
  EXPECT_EQ(object["workers"], 3);
  EXPECT_EQ(object["hosts"], 2);
  EXPECT_EQ(object["namespaces"], 2);
  EXPECT_EQ(object["rate"], "200mbit");
  EXPECT_EQ(object["memory"], "foreign");
  EXPECT_DOUBLE_EQ(object["busbw_gbs"], 2 * 22.0 / 12);
  for (const char* name : {"limit", "limit_gbs", "percent_of_limit"}) {
    EXPECT_TRUE(object[name].is_null()) << name;
  }
}

TEST(ReportTest, NoRowsAreAnEmptyArray) {
  EXPECT_EQ(nlohmann::json::parse(json_report({})).size(), 0U);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(ReportTest, TheLineHasTheColumnsOfTheHead) {
  const RowPair rows{make_row(Placement::OUT_OF_PLACE), make_row(Placement::IN_PLACE)};
  EXPECT_EQ(words_of(table_line(rows, ShowPercentiles::NO)),
            (std::vector<std::string>{"1000000", "250000", "float32", "sum", "-1", "500.0", "2.00",
                                      "3.00", "80", "0", "500.0", "2.00", "3.00", "80", "0"}));
  EXPECT_EQ(words_of(table_line(rows, ShowPercentiles::YES)).size(), 19U);
}

TEST(ReportTest, MissingPlacementsAndChecksAreShownAsSuch) {
  RowPair rows{make_row(Placement::OUT_OF_PLACE), std::nullopt};
  rows.out_of_place.wrong.reset();
  const auto words = words_of(table_line(rows, ShowPercentiles::NO));
  ASSERT_EQ(words.size(), 15U);
  EXPECT_EQ(words[9], "N/A");
  for (std::size_t i = 10; i < words.size(); ++i) EXPECT_EQ(words[i], "-");
  rows.out_of_place.limit.clear();
  EXPECT_EQ(words_of(table_line(rows, ShowPercentiles::NO))[8], "-");
}

TEST(ReportTest, ColumnsStandUnderTheirHeads) {
  for (const ShowPercentiles percentiles : {ShowPercentiles::NO, ShowPercentiles::YES}) {
    std::istringstream head(table_head(percentiles));
    std::string first;
    std::string second;
    std::string third;
    std::getline(head, first);
    std::getline(head, second);
    std::getline(head, third);
    const RowPair rows{make_row(Placement::OUT_OF_PLACE), make_row(Placement::IN_PLACE)};
    std::string line = table_line(rows, percentiles);
    line.pop_back();
    EXPECT_EQ(second.size(), line.size());
    EXPECT_EQ(second.rfind("#wrong") + 6, line.size());
    EXPECT_EQ(second.find("size") + 4, line.find("1000000") + 7);
  }
}

}  // namespace
}  // namespace crossdevice::bench
