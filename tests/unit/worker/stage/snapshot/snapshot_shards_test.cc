#include "worker/stage/snapshot/snapshot_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NamedArray Array(std::string name, float first, size_t count) {
  NamedArray array{std::move(name), {static_cast<int64_t>(count)}, std::vector<float>(count)};
  std::iota(array.values.begin(), array.values.end(), first);
  return array;
}

TEST(ArrayPieces, NamesGoThereAndBack) {
  EXPECT_EQ(PieceName("h.0.w", 4096, ".exp_avg"), "h.0.w@4096.exp_avg");
  EXPECT_EQ(WholeName("h.0.w@4096.exp_avg"),
            std::pair(std::string("h.0.w.exp_avg"), uint64_t{4096}));
  EXPECT_EQ(WholeName("h.0.w.exp_avg"), std::pair(std::string("h.0.w.exp_avg"), uint64_t{0}));
  EXPECT_EQ(WholeName("odd@name"), std::pair(std::string("odd@name"), uint64_t{0}));
}

TEST(ArrayPieces, AreReadAcrossTheirBorders) {
  const std::vector<NamedArray> arrays = {Array("w@4.m", 4, 3), Array("b.m", 100, 2),
                                          Array("w@0.m", 0, 4), Array("w@7.m", 7, 5)};
  const ArrayPieces pieces(arrays);
  EXPECT_TRUE(pieces.HasPieces());
  EXPECT_TRUE(pieces.Has("w.m"));
  EXPECT_FALSE(pieces.Has("w@4.m"));
  for (uint64_t first = 0; first < 12; ++first) {
    for (uint64_t count = 1; first + count <= 12; ++count) {
      std::vector<float> read(count, -1), expected(count);
      std::iota(expected.begin(), expected.end(), static_cast<float>(first));
      ASSERT_TRUE(pieces.Read("w.m", first, read).ok());
      EXPECT_EQ(read, expected);
    }
  }
  std::vector<float> two(2);
  ASSERT_TRUE(pieces.Read("b.m", 0, two).ok());
  EXPECT_THAT(two, ElementsAre(100, 101));
}

TEST(ArrayPieces, SayWhatIsMissing) {
  const std::vector<NamedArray> arrays = {Array("w@0.m", 0, 4), Array("w@6.m", 6, 4)};
  const ArrayPieces pieces(arrays);
  std::vector<float> read(10);
  const Status gap = pieces.Read("w.m", 0, read);
  EXPECT_EQ(gap.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(gap), HasSubstr("w.m but for its elements from 4 on"));
  EXPECT_THAT(Message(pieces.Read("w.m", 8, std::span(read).first(3))), HasSubstr("from 10 on"));
  EXPECT_THAT(Message(pieces.Read("v.m", 0, read)), HasSubstr("has no v.m"));
}

TEST(WithoutPieces, PutsTogetherWhatReplicasHave) {
  StageSnapshot snapshot{
      .step = 9,
      .parameters = {{"w", {2, 3}, std::vector<float>(6, 0.5f)}, Array("b", 7, 2)},
      .moments = {Array("w@0.exp_avg", 0, 4), Array("w@4.exp_avg", 4, 2),
                  Array("w@0.exp_avg_sq", 10, 6), Array("b@0.exp_avg", 20, 2),
                  Array("b@0.exp_avg_sq", 30, 2), Array("w@2.master", 52, 4),
                  Array("w@0.master", 50, 2), Array("w.residual-0-of-2", 0, 6)}};
  const auto whole = WithoutPieces(snapshot);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->step, 9u);
  EXPECT_THAT(whole->parameters[0].values, ElementsAre(50, 51, 52, 53, 54, 55));
  EXPECT_THAT(whole->parameters[1].values, ElementsAre(7, 8));
  ASSERT_EQ(whole->moments.size(), 4u);
  EXPECT_EQ(whole->moments[0].name, "w.exp_avg");
  EXPECT_THAT(whole->moments[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(whole->moments[0].values, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(whole->moments[3].name, "b.exp_avg_sq");

  snapshot.moments.erase(snapshot.moments.begin());
  EXPECT_THAT(Message(WithoutPieces(snapshot).status()),
              HasSubstr("files of a replica are missing"));
}

}  // namespace
}  // namespace longhaul::worker
