#include "training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

TrainingState SomeState() {
  return {.training = "4 ranks, seed 1",
          .snapshot = {.step = 7,
                       .parameters = {{"w", {2, 2}, {1, 2, 3, 4}}, {"b", {1}, {5}}},
                       .moments = {{"w.exp_avg", {2, 2}, {6, 7, 8, 9}}}},
          .sent_bytes_a_step = 11,
          .seconds = 1.25};
}

TEST(TrainingState, IsReadAsItWasSaved) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/state";
  EXPECT_FALSE(LoadState(path, "4 ranks, seed 1")->has_value());
  const TrainingState state = SomeState();
  ASSERT_TRUE(SaveState(path, state).ok());
  const auto read = LoadState(path, "4 ranks, seed 1");
  ASSERT_TRUE(read.ok() && read->has_value()) << read.status();
  EXPECT_EQ((*read)->snapshot.step, 7u);
  EXPECT_EQ((*read)->sent_bytes_a_step, 11u);
  EXPECT_EQ((*read)->seconds, 1.25);
  ASSERT_EQ((*read)->snapshot.parameters.size(), 2u);
  ASSERT_EQ((*read)->snapshot.moments.size(), 1u);
  EXPECT_EQ((*read)->snapshot.parameters[0].values, state.snapshot.parameters[0].values);
  EXPECT_EQ((*read)->snapshot.parameters[0].shape, state.snapshot.parameters[0].shape);
  EXPECT_EQ((*read)->snapshot.moments[0].name, "w.exp_avg");
  EXPECT_EQ((*read)->snapshot.moments[0].values, state.snapshot.moments[0].values);
}

TEST(TrainingState, OfAnotherTrainingIsRefused) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/state";
  ASSERT_TRUE(SaveState(path, SomeState()).ok());
  const Status other = LoadState(path, "4 ranks, seed 2").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(other.message(), HasSubstr("expected the state of '4 ranks, seed 2', got that of '4 "
                                         "ranks, seed 1'; remove the file"));
  ASSERT_TRUE(WriteFileAtomic(path, "no safetensors").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(LoadState(path, "4 ranks, seed 1").status()));
}

}  // namespace
}  // namespace longhaul::worker
