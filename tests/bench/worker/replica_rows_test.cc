#include "replica_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kept_rows.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

std::vector<ReplicaRow> SomeRows() {
  std::vector<ReplicaRow> rows;
  for (const uint64_t seed : {1, 2}) {
    const double loss = 2.0 + static_cast<double>(seed);
    rows.push_back({.form = "bf16/bf16",
                    .lr = 1e-3,
                    .seed = seed,
                    .step = 10,
                    .train_loss = 3,
                    .validation_loss = loss,
                    .parameters = 5,
                    .gradient_bytes = 60,
                    .parameter_bytes = 40});
    rows.push_back(rows.back());
    rows.back().form = "tagc:keep=0.02,least=9/bf16";
    rows.back().gradient_bytes = 10;
    rows.back().validation_loss = 1.02 * loss;
  }
  return rows;
}

TEST(ReplicaRows, AreReadAsWritten) {
  std::string text = ReplicaRow::Header();
  for (const ReplicaRow& row : SomeRows()) text += ToCsv(row);
  const auto rows = ParseRows<ReplicaRow>(text);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 4u);
  EXPECT_TRUE((*rows)[3].IsOfRun(SomeRows()[3]));
  EXPECT_FALSE((*rows)[3].IsOfRun(SomeRows()[1]));
  EXPECT_EQ((*rows)[3].gradient_bytes, 10u);
  EXPECT_THAT(ParseRows<ReplicaRow>("a,b\n").status().message(),
              HasSubstr("rows of replica_training"));
  EXPECT_THAT(ParseRows<ReplicaRow>(ReplicaRow::Header() + "1,2\n").status().message(),
              HasSubstr("line 2"));
}

TEST(ReplicaRows, TheTableHasBytesAndLossesOfTheSameRuns) {
  const std::string table = ReplicaTable(SomeRows(), "bf16/bf16", 10);
  EXPECT_THAT(table, HasSubstr("| bf16/bf16 | 60 | 40 |  | 2 | 3.5000 |  |"));
  EXPECT_THAT(table, HasSubstr("| tagc:keep=0.02,least=9/bf16 | 10 | 40 | 2.00 | 2 | 3.5700 | "
                               "+2.00 (+2.00 to +2.00) |"));
  EXPECT_EQ(ReplicaTable(SomeRows(), "bf16/bf16", 11).find("| bf16"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::worker
