// Which blob a follower fetches next.
#include "coordinator/standby/blob_puller.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace longhaul::coordinator {
namespace {

ListedBlob Named(const std::string& name) {
  return {.folder = v1::BLOB_FOLDER_DATA, .sha256 = name};
}

TEST(PullListTest, TheSmallestIsFirst) {
  PullList list;
  list.Add(Named("large"), 1000);
  list.Add(Named("small"), 1);
  list.Add(Named("small"), 1);
  EXPECT_EQ(list.blobs(), 2u);
  EXPECT_EQ(list.bytes(), 1001u);
  EXPECT_EQ(list.Next({}), Named("small"));
  EXPECT_EQ(list.Next({}), Named("large"));
  EXPECT_EQ(list.Next({}), std::nullopt);  // both are being fetched
  list.Remove(Named("small"));
  EXPECT_EQ(list.blobs(), 1u);
  EXPECT_EQ(list.bytes(), 1000u);
}

// A blob that is rotten at the leader fails again and again.
TEST(PullListTest, WhatFailsStopsNothingElse) {
  PullList list;
  list.Add(Named("bad"), 1);
  list.Add(Named("good"), 1000);
  MonoTime now;
  EXPECT_EQ(list.Next(now), Named("bad"));
  list.Failed(Named("bad"), now);
  EXPECT_EQ(list.Next(now), Named("good"));
  list.Remove(Named("good"));
  EXPECT_EQ(list.Next(now), std::nullopt);
  EXPECT_EQ(list.NextTry() - now, PullList::kShortestPause);
  absl::Duration pause;
  for (int i = 0; i < 20; ++i) {
    now = list.NextTry();
    ASSERT_EQ(list.Next(now), Named("bad"));
    list.Failed(Named("bad"), now);
    pause = list.NextTry() - now;
  }
  EXPECT_EQ(pause, PullList::kLongestPause);
  list.Remove(Named("bad"));
  EXPECT_EQ(list.NextTry(), MonoTime::max());
  EXPECT_EQ(list.bytes(), 0u);
}

TEST(PullListTest, WhatWasRemovedMeanwhileIsForgotten) {
  PullList list;
  list.Add(Named("gone"), 5);
  EXPECT_EQ(list.Next({}), Named("gone"));
  list.Remove(Named("gone"));
  list.Failed(Named("gone"), {});
  EXPECT_EQ(list.blobs(), 0u);
  EXPECT_EQ(list.NextTry(), MonoTime::max());
}

}  // namespace
}  // namespace longhaul::coordinator
