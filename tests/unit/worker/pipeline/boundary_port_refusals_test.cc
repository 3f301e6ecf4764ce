// Frames that a port drops or refuses.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/worker/pipeline/boundary_port_harness.h"

namespace longhaul::worker {
namespace {

TEST_F(BoundaryPortTest, AnotherEpochIsDropped) {
  const auto receiver = Make(/*upstream=*/true);
  for (const auto& frame : FramesOf(0, /*epoch=*/2))
    receiver->OnFrame(transport::Lane::kBulk, frame);
  Drain();
  EXPECT_TRUE(events_->TakeAll().empty());
  EXPECT_EQ(receiver->frames_received(), 2u);
}

TEST_F(BoundaryPortTest, RefusesAGapInTheMicrobatches) {
  const auto receiver = Make(/*upstream=*/true);
  receiver->OnFrame(transport::Lane::kBulk, FramesOf(1).front());
  ExpectFailure("not the one that follows");
}

TEST_F(BoundaryPortTest, RefusesAChunkThatDoesNotContinue) {
  const auto frames = FramesOf(0);
  const auto receiver = Make(/*upstream=*/true);
  receiver->OnFrame(transport::Lane::kBulk, frames[0]);
  receiver->OnFrame(transport::Lane::kBulk, frames[0]);
  ExpectFailure("does not continue");
}

TEST_F(BoundaryPortTest, RefusesTruncatedFramesOfEveryLength) {
  const auto frame = FramesOf(0).front();
  for (size_t size = 0; size < frame.size(); size += size < 128 ? 1 : 4096) {
    const auto receiver = Make(/*upstream=*/true);
    receiver->OnFrame(transport::Lane::kBulk, std::span(frame).first(size));
    const auto events = events_->TakeAll();
    ASSERT_EQ(events.size(), 1u) << size;
    EXPECT_NE(std::get_if<Failed>(&events.front()), nullptr) << size;
  }
}

TEST_F(BoundaryPortTest, RefusesTheWrongDirection) {
  const auto receiver = Make(/*upstream=*/false);
  receiver->OnFrame(transport::Lane::kBulk, FramesOf(0).front());
  ExpectFailure("expected edge 0 backward");
}

TEST_F(BoundaryPortTest, RefusesATensorOfAnotherReplica) {
  const auto frames = FramesOf(0);
  replica_ = 1;
  const auto receiver = Make(/*upstream=*/true);
  receiver->OnFrame(transport::Lane::kBulk, frames.front());
  ExpectFailure("expected whole tensors of replica 1");
}

}  // namespace
}  // namespace longhaul::worker
