// The port of a tied edge: pieces of a gradient, digests, and what is refused.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/worker/pipeline/boundary_port_harness.h"

namespace longhaul::worker {
namespace {

// The port of a tied edge sends pieces of a gradient and digests, and no step messages.
class TiedPortTest : public BoundaryPortTest {
 protected:
  std::shared_ptr<BoundaryPort> MakeTied(bool upstream, EdgeKind kind = EdgeKind::kTied) {
    const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("none"));
    return BoundaryPort::Create({.stamp = Stamp(1),
                                 .epoch = Epoch(1),
                                 .edge = EdgeId(0),
                                 .kind = kind,
                                 .upstream = upstream,
                                 .shape = shape_,
                                 .microbatches = 3,
                                 .send_codec = codec,
                                 .receive_codec = codec},
                                &codec_thread_, events_);
  }
};

TEST_F(TiedPortTest, SaysWhenAPieceIsTakenAndWhatCame) {
  const auto sender = MakeTied(/*upstream=*/true), receiver = MakeTied(/*upstream=*/false);
  const auto link = std::make_shared<RecordingLink>();
  sender->Attach(link);
  auto values = std::make_shared<std::vector<float>>(kShape.elements(), 0.5f);
  for (uint32_t piece = 0; piece < 2; ++piece) {
    sender->SendTensor(Pass{Step(4)}, Microbatch(piece),
                       {{values->data(), codec::Dtype::kF32, kShape}, values});
  }
  Drain();
  auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 2u);
  for (const PipelineEvent& event : events) {
    EXPECT_TRUE(std::holds_alternative<PieceTaken>(event));
  }
  sender->SendMatrixDigest(Step(4), 0x123456789abcdef0);
  for (const auto& [lane, frame] : link->Take()) receiver->OnFrame(lane, frame);
  Drain();
  events = events_->TakeAll();
  ASSERT_EQ(events.size(), 3u);
  uint32_t pieces = 0;
  for (const PipelineEvent& event : events) {
    if (const auto* digest = std::get_if<DigestArrived>(&event)) {
      EXPECT_EQ(digest->step, Step(4));
      EXPECT_EQ(digest->digest, 0x123456789abcdef0u);
      continue;
    }
    const auto& arrived = std::get<TensorArrived>(event);
    EXPECT_EQ(arrived.over, EdgeKind::kTied);
    EXPECT_EQ(arrived.slice, Microbatch(pieces++));
  }
  EXPECT_EQ(pieces, 2u);
}

TEST_F(TiedPortTest, RefusesMessagesOfTheOtherKind) {
  for (const bool tied : {false, true}) {
    const auto sender =
        MakeTied(/*upstream=*/true, tied ? EdgeKind::kTied : EdgeKind::kActivations);
    const auto receiver =
        MakeTied(/*upstream=*/false, tied ? EdgeKind::kActivations : EdgeKind::kTied);
    const auto link = std::make_shared<RecordingLink>();
    sender->Attach(link);
    if (tied) {
      sender->SendMatrixDigest(Step(1), 7);
    } else {
      sender->SendStepMessage(wire::TensorKind::kNormUp, Step(1), {});
    }
    for (const auto& [lane, frame] : link->Take()) receiver->OnFrame(lane, frame);
    ExpectFailure(tied ? "over an edge of activations" : "over an edge of tied");
  }
}

}  // namespace
}  // namespace longhaul::worker
