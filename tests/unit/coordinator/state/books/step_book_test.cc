#include "coordinator/state/books/step_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Stages = std::vector<uint64_t>;

// What two stages say of themselves on some devices, and on others.
const Stages kHere = {11, 22}, kElsewhere = {11, 33}, kInAnyOrder = {11, 0};

class StepBookTest : public ::testing::Test {
 protected:
  // The step's numbers are those of the step alone, but for `more` in the loss.
  std::optional<RepeatedStep> File(uint64_t epoch, uint64_t step, const Stages& stages,
                                   double more = 0) {
    row = v1::StepRecord();
    row.set_epoch(epoch);
    row.set_step(step);
    row.set_loss(5 - 0.1 * static_cast<double>(step) + more);
    row.set_gradient_norm(2);
    for (const double part : {3.0, 1.0}) row.add_squared_norms(part);
    return book.File(&row, stages);
  }
  void FileAll(uint64_t epoch, uint64_t first, uint64_t last, const Stages& stages) {
    for (uint64_t step = first; step <= last; ++step) File(epoch, step, stages);
  }

  StepBook book;
  v1::StepRecord row;  // as it was filed last
};

TEST_F(StepBookTest, WhatIsNewIsNoRepeat) {
  EXPECT_FALSE(File(1, 1, kHere));
  EXPECT_NE(row.numerics(), 0u);
  EXPECT_FALSE(File(1, 2, kHere));
  EXPECT_FALSE(book.TakeRepeated());
}

TEST_F(StepBookTest, TheSameStagesPromiseTheSameBits) {
  FileAll(1, 1, 4, kHere);
  const std::optional<RepeatedStep> repeated = File(2, 3, kHere);
  ASSERT_TRUE(repeated);
  EXPECT_TRUE(repeated->promised);
  EXPECT_TRUE(repeated->same());
  EXPECT_FALSE(book.TakeRepeated()) << "step 4 is still to come";
  EXPECT_TRUE(File(2, 4, kHere)->promised);
  const std::optional<RepeatedSteps> all = book.TakeRepeated();
  ASSERT_TRUE(all);
  EXPECT_EQ(all->first, 3u);
  EXPECT_EQ(all->last, 4u);
  EXPECT_TRUE(all->same);
  EXPECT_FALSE(book.TakeRepeated()) << "once";
}

TEST_F(StepBookTest, OneBitIsADifference) {
  FileAll(1, 1, 3, kHere);
  row.set_epoch(2);
  v1::StepRecord now = row;
  now.set_squared_norms(1, std::nextafter(1.0, 2.0));
  const std::optional<RepeatedStep> repeated = book.File(&now, kHere);
  ASSERT_TRUE(repeated);
  EXPECT_TRUE(repeated->promised);
  EXPECT_TRUE(repeated->same_loss);
  EXPECT_TRUE(repeated->same_norm);
  EXPECT_THAT(repeated->other_parts, ElementsAre(1));
  EXPECT_EQ(repeated->before.squared_norms(1), 1.0);
}

TEST_F(StepBookTest, OtherStagesPromiseNothingAndTheDifferenceIsMeasured) {
  FileAll(1, 1, 5, kHere);
  EXPECT_FALSE(File(2, 3, kElsewhere)->promised);
  EXPECT_FALSE(File(2, 4, kElsewhere, 0.25)->promised);
  EXPECT_FALSE(File(2, 5, kElsewhere, -0.125)->promised);
  const std::optional<RepeatedSteps> all = book.TakeRepeated();
  ASSERT_TRUE(all);
  EXPECT_FALSE(all->same);
  EXPECT_TRUE(all->in_order);
  EXPECT_EQ(all->differs_at, 4u);
  EXPECT_NEAR(all->loss_difference, 0.25, 1e-12);
  EXPECT_EQ(all->norm_difference, 0);
}

TEST_F(StepBookTest, SumsInAnyOrderPromiseNothing) {
  FileAll(1, 1, 3, kInAnyOrder);
  EXPECT_EQ(row.numerics(), 0u);
  EXPECT_FALSE(File(2, 2, kInAnyOrder)->promised);
  EXPECT_FALSE(File(2, 3, kInAnyOrder)->promised);
  EXPECT_FALSE(book.TakeRepeated()->in_order);
  // Nor does what follows, whose parameters came of them.
  FileAll(2, 4, 6, kHere);
  EXPECT_NE(row.numerics(), 0u);
  EXPECT_FALSE(File(3, 4, kHere)->promised);
}

// Epoch 2 trained elsewhere from step 3 on, and its checkpoint of step 4 is what epoch 3 begins
// with, on the devices of epoch 1: whose steps 5 and 6 came of other parameters.
TEST_F(StepBookTest, StepsOfAWayThatWasLeftPromiseNothing) {
  FileAll(1, 1, 6, kHere);
  FileAll(2, 3, 4, kElsewhere);
  EXPECT_FALSE(File(3, 5, kHere)->promised);
  EXPECT_FALSE(File(3, 6, kHere)->promised);
}

// Here epoch 3 goes back to where the ways parted: it repeats epoch 1's way.
TEST_F(StepBookTest, AWayThatIsTakenAgainPromisesTheSame) {
  FileAll(1, 1, 6, kHere);
  FileAll(2, 3, 4, kElsewhere);
  EXPECT_FALSE(File(3, 3, kHere)->promised);
  EXPECT_FALSE(File(3, 4, kHere)->promised);
  EXPECT_TRUE(File(3, 5, kHere)->promised);
  EXPECT_TRUE(File(3, 6, kHere)->promised);
}

TEST_F(StepBookTest, WithoutTheStepBeforeNothingIsPromised) {
  FileAll(1, 5, 7, kHere);
  EXPECT_FALSE(File(2, 5, kHere)->promised);
  EXPECT_FALSE(File(2, 6, kHere)->promised);
}

TEST_F(StepBookTest, ToldAgainIsNotTrainedAgain) {
  FileAll(1, 1, 2, kHere);
  const uint64_t numerics = row.numerics();
  EXPECT_FALSE(File(1, 2, kHere));
  EXPECT_EQ(row.numerics(), numerics);
}

TEST_F(StepBookTest, WhatWasStoredIsComparedToo) {
  std::vector<v1::StepRecord> stored;
  for (uint64_t step = 1; step <= 4; ++step) {
    File(1, step, kHere);
    stored.push_back(row);
  }
  book = StepBook();
  book.Load(stored);
  EXPECT_TRUE(File(2, 3, kHere)->promised);
}

TEST_F(StepBookTest, ARowOfAnOlderVersionHasNoParts) {
  FileAll(1, 1, 2, kHere);
  v1::StepRecord old = row;
  old.clear_squared_norms();
  old.clear_numerics();
  book.Load({{old}});
  const std::optional<RepeatedStep> repeated = File(2, 2, kHere);
  ASSERT_TRUE(repeated);
  EXPECT_FALSE(repeated->promised);
  EXPECT_TRUE(repeated->same());
  EXPECT_THAT(repeated->other_parts, IsEmpty());
}

TEST_F(StepBookTest, AnEpochThatIsInterruptedBeginsToCountAgain) {
  FileAll(1, 1, 5, kHere);
  FileAll(2, 3, 4, kHere);
  FileAll(3, 3, 5, kHere);
  const std::optional<RepeatedSteps> all = book.TakeRepeated();
  ASSERT_TRUE(all);
  EXPECT_EQ(all->epoch, 3u);
  EXPECT_EQ(all->first, 3u);
  EXPECT_EQ(all->last, 5u);
}

TEST_F(StepBookTest, ItIsBoundedAndThePresentStepKeepsItsPlace) {
  FileAll(1, 1, kKeptSteps + 5, kHere);
  EXPECT_FALSE(File(2, 5, kHere)) << "it is gone";
  EXPECT_TRUE(File(2, 6, kHere));
  // Back to the beginning: the steps are numbered on from there, and meet those that are kept.
  FileAll(3, 1, 9, kHere);
  EXPECT_TRUE(File(3, 10, kHere)->promised);
}

TEST_F(StepBookTest, WhatIsBehindTheOldestCheckpointIsForgotten) {
  FileAll(1, 1, 6, kHere);
  book.ForgetBefore(4);
  EXPECT_FALSE(File(2, 3, kHere));
  EXPECT_TRUE(File(2, 4, kHere));
}

}  // namespace
}  // namespace longhaul::coordinator
