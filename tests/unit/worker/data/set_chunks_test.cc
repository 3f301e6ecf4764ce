// Who is asked for a chunk, in which order, and what others may ask for.
#include "worker/data/set_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/worker/data/chunk_lists.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Whoever has chunks: a place, another worker, the coordinator.
class Owner {
 public:
  explicit Owner(std::set<uint64_t> has) : has_(std::move(has)) {}
  FetchChunk fetch() {
    return [this](const data::Source&, const data::HashedFile&, uint64_t chunk,
                  const ChunkGivenUp&) { return Give(chunk); };
  }
  StatusOr<std::vector<std::byte>> Give(uint64_t chunk) {
    asked.push_back(chunk);
    if (!has_.contains(chunk)) return absl::NotFoundError("not here");
    return ChunkBytes(chunk);
  }
  std::vector<uint64_t> asked;

 private:
  const std::set<uint64_t> has_;
};

class Others : public OtherReaders {
 public:
  explicit Others(std::set<uint64_t> has) : owner(std::move(has)) {}
  StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                        const ChunkGivenUp&) override {
    EXPECT_EQ(bytes, ChunkBytes(id.chunk).size());
    EXPECT_EQ(sha256, ChunkHash(id.chunk));
    LH_ASSIGN_OR_RETURN(std::vector<std::byte> got, owner.Give(id.chunk));
    return Found{std::move(got), "stage 0"};
  }
  Owner owner;
};

const ChunkGivenUp kNever = [] { return false; };

struct ReaderOfChunks {
  explicit ReaderOfChunks(const std::string& folder = "/set")
      : chunks(SetChunksOptions{.mixture = ListOfChunks(folder, 5),
                                .memory_bytes = uint64_t{1} << 20,
                                .from_place = place.fetch(),
                                .from_coordinator = coordinator.fetch()}) {
    chunks.SetOthers(others);
  }
  Owner place{{0}}, coordinator{{0, 1, 2, 3}};
  std::shared_ptr<Others> others = std::make_shared<Others>(std::set<uint64_t>{0, 1});
  SetChunks chunks;
};

TEST(SetChunks, AreAskedForOfTheNearestHolderFirst) {
  ReaderOfChunks at;
  for (uint64_t chunk = 0; chunk < 3; ++chunk) {
    const auto got = at.chunks.Get({.chunk = chunk});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(**got, ChunkBytes(chunk));
  }
  EXPECT_THAT(at.place.asked, ElementsAre(0, 1, 2));
  EXPECT_THAT(at.others->owner.asked, ElementsAre(1, 2));
  EXPECT_THAT(at.coordinator.asked, ElementsAre(2));
  EXPECT_EQ(
      ToString(at.chunks.TakeTally()),
      "1 chunk (4.1 KB) from its folder, 1 chunk (4.1 KB) from stage 0, 1 chunk (4.1 KB) from "
      "the coordinator");
  EXPECT_TRUE(at.chunks.TakeTally().empty());
}

TEST(SetChunks, WithoutOthersTheCoordinatorIsNext) {
  ReaderOfChunks at;
  at.chunks.SetOthers(nullptr);
  ASSERT_TRUE(at.chunks.Get({.chunk = 1}).ok());
  EXPECT_THAT(at.coordinator.asked, ElementsAre(1));
}

TEST(SetChunks, WhatNobodyHasIsNamed) {
  ReaderOfChunks at;
  const Status none = at.chunks.Get({.chunk = 4}).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(Message(none)),
              HasSubstr("neither this worker nor the coordinator nor another worker of the run has "
                        "what is needed of the data set in /set"));
}

TEST(SetChunks, OnTheWebNobodyElseIsAsked) {
  ReaderOfChunks at("https://files.example/set");
  EXPECT_TRUE(at.chunks.Get({.chunk = 0}).ok());
  EXPECT_TRUE(absl::IsNotFound(at.chunks.Get({.chunk = 1}).status()));
  EXPECT_TRUE(at.others->owner.asked.empty());
  EXPECT_TRUE(at.coordinator.asked.empty());
  // What is in memory can be had, and no more.
  EXPECT_TRUE(at.chunks.Give({.chunk = 0}, true, kNever).ok());
  EXPECT_TRUE(absl::IsNotFound(at.chunks.Give({.chunk = 2}, true, kNever).status()));
  EXPECT_THAT(at.place.asked, ElementsAre(0, 1));
}

TEST(SetChunks, WhoFetchesForOthersFetchesOnce) {
  ReaderOfChunks at;
  ASSERT_TRUE(at.chunks.Give({.chunk = 3}, /*fetches=*/true, kNever).ok());
  ASSERT_TRUE(at.chunks.Get({.chunk = 3}).ok());
  EXPECT_THAT(at.coordinator.asked, ElementsAre(3));
}

TEST(SetChunks, WhoDoesNotFetchGivesWhatIsHere) {
  ReaderOfChunks at;
  EXPECT_TRUE(at.chunks.Give({.chunk = 0}, /*fetches=*/false, kNever).ok());
  EXPECT_TRUE(absl::IsNotFound(at.chunks.Give({.chunk = 1}, false, kNever).status()));
  ASSERT_TRUE(at.chunks.Get({.chunk = 2}).ok());
  EXPECT_TRUE(at.chunks.Give({.chunk = 2}, false, kNever).ok()) << "it is in memory";
  EXPECT_THAT(at.coordinator.asked, ElementsAre(2));
}

TEST(SetChunks, NobodyGetsWhatTheListDoesNotHave) {
  ReaderOfChunks at;
  for (const ChunkId& id :
       {ChunkId{.source = 1}, ChunkId{.shard = 1}, ChunkId{.mask = true}, ChunkId{.chunk = 5},
        ChunkId{.text = Text::kValidation}, ChunkId{.chunk = ~uint64_t{0}}}) {
    for (const bool fetches : {false, true}) {
      EXPECT_TRUE(absl::IsNotFound(at.chunks.Give(id, fetches, kNever).status()));
    }
  }
  EXPECT_TRUE(at.place.asked.empty());
  EXPECT_TRUE(at.coordinator.asked.empty());
}

}  // namespace
}  // namespace longhaul::worker
