#include "deploy/sweep/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/unit/deploy/sweep/sample.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

SweepResults Mixed() {
  SweepResults results = Sample();
  results.points[1] = SampleWaiting(20'000'000, "fp32", "1f1b");
  results.points[2].state = PointState::kRunFailed;
  results.points[2].reason = "it said \"no\", twice,\nand died";
  results.points[3].state = PointState::kImpossible;
  results.points[4].replayed = true;
  results.points[4].replay_source = "one GPU";
  for (StepResult& step : results.points[4].curve) {
    step.loss = step.validation_loss = step.clean_validation_loss = std::nullopt;
  }
  results.points[5].link_bytes[0].up = std::nullopt;
  return results;
}

// One that did not run keeps no more than that.
SweepResults AsStored(SweepResults results) {
  for (size_t i : {2u, 3u}) {
    PointResult bare = SampleWaiting(0, "", "");
    PointResult& point = results.points[i];
    bare.id = point.id;
    bare.rate_bits_per_second = point.rate_bits_per_second;
    bare.links = point.links;
    bare.forward = point.forward;
    bare.backward = point.backward;
    bare.schedule = point.schedule;
    bare.state = point.state;
    bare.reason = point.reason;
    bare.run_id = point.run_id;
    point = bare;
  }
  return results;
}

TEST(ResultsJson, GoesThereAndBack) {
  const auto back = ResultsFromJson(ToJson(Mixed()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == AsStored(Mixed()));
}

TEST(ResultsJson, SaysThatItIsPartial) {
  EXPECT_TRUE(nlohmann::json::parse(ToJson(Mixed())).at("partial").get<bool>());
  EXPECT_FALSE(nlohmann::json::parse(ToJson(Sample())).at("partial").get<bool>());
}

TEST(ResultsJson, BytesThatAreNoTextDoNotSpoilIt) {
  SweepResults results = Sample();
  results.points[0].explanation = "\xff\xfe bytes";
  EXPECT_TRUE(ResultsFromJson(ToJson(results)).ok());
}

TEST(ResultsJson, OtherFilesAreRefused) {
  EXPECT_FALSE(ResultsFromJson("").ok());
  EXPECT_FALSE(ResultsFromJson("[]").ok());
  EXPECT_FALSE(ResultsFromJson("{\"format\": 1}").ok());
  std::string text = ToJson(Sample());
  EXPECT_FALSE(ResultsFromJson(text.substr(0, text.size() / 2)).ok());
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 9");
  EXPECT_THAT(std::string(Message(ResultsFromJson(text).status())),
              HasSubstr("expected format 1, got 9"));
}

// Splits RFC 4180 text.
std::vector<std::vector<std::string>> ReadCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back().push_back('"');
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      rows.push_back({""});
    } else if (c != '\r' || quoted) {
      rows.back().back().push_back(c);
    }
  }
  rows.pop_back();
  return rows;
}

TEST(ResultsCsv, HasARowAPointAndAllColumns) {
  const SweepResults results = Mixed();
  const auto rows = ReadCsv(ToCsv(results));
  ASSERT_EQ(rows.size(), results.points.size() + 1);
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(rows[0], name) - rows[0].begin());
  };
  for (const auto& row : rows) ASSERT_EQ(row.size(), rows[0].size());
  EXPECT_EQ(rows[3][column("reason")], results.points[2].reason);
  EXPECT_EQ(rows[2][column("state")], "waiting");
  EXPECT_EQ(rows[2][column("step_seconds")], "");
  EXPECT_NEAR(std::stod(rows[1][column("tokens_per_second")]), results.points[0].TokensPerSecond(),
              1e-3);
  EXPECT_EQ(rows[5][column("replayed")], "yes");
  EXPECT_EQ(rows[5][column("last_loss")], "");
  EXPECT_EQ(rows[1][column("uplink_bytes")], "4000006");
  EXPECT_EQ(rows[6][column("uplink_bytes")], "");
  EXPECT_NEAR(std::stod(rows[1][column("last_validation_loss")]), 5.5 / 2 + 0.2 + 0.1, 1e-6);
  EXPECT_NEAR(std::stod(rows[1][column("last_clean_validation_loss")]), 5.5 / 2 + 0.2 + 0.05, 1e-6);
}

TEST(WhatChanged, NamesIt) {
  const SweepResults before = Sample();
  EXPECT_EQ(WhatChanged(before, before), "");
  SweepResults now = Sample();
  now.identity[0].second = "20mbit";
  EXPECT_EQ(WhatChanged(before, now), "rates: '20mbit, 5mbit' is now '20mbit'");
  now.identity[1].second += "more";
  EXPECT_THAT(WhatChanged(before, now), HasSubstr("the base run: not what it was"));
  SweepResults more = Sample();
  more.identity.emplace_back("delays", "5ms");
  EXPECT_EQ(WhatChanged(before, more), "delays: '' is now '5ms'");
  EXPECT_EQ(WhatChanged(more, before), "delays: '5ms' is now ''");
}

TEST(ThisMachineInfo, IsKnown) {
  const MachineInfo machine = ThisMachineInfo();
  EXPECT_NE(machine.cpu, "");
  EXPECT_GT(machine.cores, 0u);
  EXPECT_GT(machine.memory_bytes, uint64_t{1} << 20);
  EXPECT_THAT(machine.kernel, HasSubstr("Linux"));
}

}  // namespace
}  // namespace longhaul::cli
