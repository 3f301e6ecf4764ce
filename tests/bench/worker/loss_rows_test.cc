#include "loss_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kept_rows.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LossRow Row(uint32_t ranks, const std::string& collective, uint64_t seed, double loss) {
  return {.ranks = ranks,
          .collective = collective,
          .seed = seed,
          .step = 500,
          .train_loss = loss + 0.1,
          .validation_loss = loss,
          .parameters = 192960,
          .sent_bytes_a_step = 1000,
          .seconds = 1.5};
}

TEST(LossRows, GoThroughAFile) {
  const LossRow row = Row(4, "taco:format=int8,block=64/zip", 7, 1.79527);
  EXPECT_EQ(ToCsv(row),
            "4,\"taco:format=int8,block=64/zip\",1,7,500,1.89527,1.79527,192960,1000,1.5\n");
  const auto rows =
      ParseRows<LossRow>(LossRow::Header() + ToCsv(row) + ToCsv(Row(2, "none", 1, 2)));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_TRUE((*rows)[0].IsOfRun(row));
  EXPECT_EQ(ToCsv((*rows)[0]), ToCsv(row));
  EXPECT_EQ((*rows)[1].collective, "none");
  EXPECT_FALSE((*rows)[1].IsOfRun(row));
}

TEST(LossRows, OfOtherFilesAreRefused) {
  EXPECT_THAT(std::string(Message(ParseRows<LossRow>("step,loss\n1,2\n").status())),
              HasSubstr("expected rows of group_training"));
  const std::string whole = LossRow::Header() + ToCsv(Row(2, "none", 1, 2));
  EXPECT_THAT(std::string(Message(ParseRows<LossRow>(whole + "2,none,1\n").status())),
              HasSubstr("line 3: expected a row, got '2,none,1'"));
  EXPECT_FALSE(ParseRows<LossRow>(whole + "2,\"none,1,1,500,1,1,1,1,1\n").ok());
}

// Differences of 1, 2 and 3 %: their mean is 2, their deviation 1, and t of 2 degrees 4.303.
TEST(LossTable, ComparesRunsOfTheSameSeed) {
  std::vector<LossRow> rows;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto base = static_cast<double>(seed);
    rows.push_back(Row(2, "none", seed, base));
    rows.push_back(Row(2, "taco", seed, base * (1 + 0.01 * base)));
  }
  rows.push_back(Row(4, "none", 1, 5));
  rows.push_back(Row(4, "zip", 1, 5.05));
  rows.push_back(Row(4, "zip", 2, 6));  // nothing to compare with
  LossRow early = Row(2, "taco", 1, 9);
  early.step = 250;
  rows.push_back(early);
  const std::string table = LossTable(rows, 500);
  EXPECT_THAT(table, HasSubstr("| 2 | none | 1 | 3 | 2.0000 |  | 1000 |"));
  EXPECT_THAT(table, HasSubstr("| 2 | taco | 1 | 3 | 2.0467 | +2.00 (-0.48 to +4.48) | 1000 |"));
  EXPECT_THAT(table, HasSubstr("| 4 | zip | 1 | 2 | 5.5250 | +1.00 | 1000 |"));
  EXPECT_THAT(LossTable(rows, 250), Not(HasSubstr("none |")));
}

// Channels of ranks' own are compared with all channels summed.
TEST(LossTable, ComparesSharesWithTheWhole) {
  std::vector<LossRow> rows = {Row(4, "none", 1, 2), Row(4, "none", 1, 2.02)};
  rows[1].shared = 0.5;
  EXPECT_THAT(LossTable(rows, 500), HasSubstr("| 4 | none | 0.5 | 1 | 2.0200 | +1.00 | 1000 |"));
}

TEST(LossRows, LastChangesAreThoseSinceTheValidationBefore) {
  std::vector<LossRow> rows;
  for (const uint64_t seed : {1, 2}) {
    for (const uint64_t step : {10, 20, 30}) {
      rows.push_back({.ranks = 4,
                      .shared = 0.5,
                      .seed = seed,
                      .step = step,
                      .validation_loss = step == 30 ? 1.98 : 4.0 - static_cast<double>(step) / 10});
    }
  }
  EXPECT_EQ(LastChanges(rows, 30),
            "4 ranks, none, 0.5 shared: -1.00 (-1.00 to -1.00) % since step 20\n");
  EXPECT_EQ(LastChanges(rows, 10), "");
}

}  // namespace
}  // namespace longhaul::worker
