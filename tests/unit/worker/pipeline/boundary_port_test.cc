// A port against a link that hands every frame over: what arrives.
#include "worker/pipeline/boundary_port.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "codec/tool/npy.h"
#include "proto/wire/link_header.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/pipeline/boundary_port_harness.h"
#include "worker/pipeline/boundary_tables.h"

namespace longhaul::worker {
namespace {

TEST_F(BoundaryPortTest, ATensorArrivesWholeAndEqual) {
  const auto frames = FramesOf(0);
  ASSERT_EQ(frames.size(), 2u);
  const auto receiver = Make(/*upstream=*/true);
  for (const auto& frame : frames) receiver->OnFrame(transport::Lane::kBulk, frame);
  Drain();
  const auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 1u);
  const auto* arrived = std::get_if<TensorArrived>(&events.front());
  ASSERT_NE(arrived, nullptr);
  EXPECT_EQ(arrived->slice, Microbatch(0));
  EXPECT_EQ(arrived->direction, Direction::kForward);
  const auto* values = static_cast<const float*>(arrived->tensor.view.data);
  for (size_t i = 0; i < kShape.elements(); ++i) ASSERT_EQ(values[i], static_cast<float>(i));
}

// Gradients, whose slices come from the last one on: each is a tensor of its own, rounded by other
// random numbers than the others, and arrives as that slice.
TEST_F(BoundaryPortTest, SlicesAreTensorsOfTheirOwn) {
  constexpr uint32_t kSlices = 3;
  const auto make = [&](bool upstream) {
    const auto codec =
        std::shared_ptr<const codec::Codec>(*codec::ParseCodec("fixed:bits=4,rounding=stochastic"));
    return BoundaryPort::Create({.stamp = Stamp(1),
                                 .epoch = Epoch(1),
                                 .edge = EdgeId(0),
                                 .peer = {.stage = upstream ? 0u : 1u},
                                 .upstream = upstream,
                                 .shape = shape_,
                                 .microbatches = 2,
                                 .slices = kSlices,
                                 .send_codec = codec,
                                 .receive_codec = codec,
                                 .credits = kPlanned},
                                &codec_thread_, events_);
  };
  const auto link = std::make_shared<RecordingLink>();
  const auto sender = make(/*upstream=*/true), receiver = make(/*upstream=*/false);
  sender->Attach(link);
  auto values = std::make_shared<std::vector<float>>(shape_.elements());
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = std::sin(static_cast<float>(i));
  const SliceOrder order(kSlices);
  std::set<std::vector<float>> came;
  for (uint32_t place = 0; place < 2 * kSlices; ++place) {
    const Slice slice = order.At(place, Direction::kBackward);
    sender->SendTensor({Step(1)}, slice, {{values->data(), codec::Dtype::kF32, shape_}, values});
    Drain();
    for (const auto& [lane, frame] : link->Take()) receiver->OnFrame(lane, frame);
    Drain();
    const auto events = events_->TakeAll();
    ASSERT_EQ(events.size(), 1u);
    const auto* arrived = std::get_if<TensorArrived>(&events.front());
    ASSERT_NE(arrived, nullptr);
    EXPECT_EQ(arrived->slice, slice);
    const auto* got = static_cast<const float*>(arrived->tensor.view.data);
    EXPECT_TRUE(came.insert({got, got + shape_.elements()}).second)
        << "as another slice was rounded";
  }
}

// What comes in one read of a socket looks infinitely fast.
TEST_F(BoundaryPortTest, FewChunksGiveNoRate) {
  const auto receiver = Make(/*upstream=*/true);
  for (const auto& frame : FramesOf(0)) receiver->OnFrame(transport::Lane::kBulk, frame);
  const PortUse use = receiver->TakeUse();
  EXPECT_EQ(use.received_bytes, 0u);
  EXPECT_EQ(use.receive_time, absl::ZeroDuration());
}

// How long the first chunk was under way is not known.
TEST_F(BoundaryPortTest, WhatComesBehindTheFirstChunkGivesTheRate) {
  shape_.tokens = 768;  // 384 KiB
  const auto frames = FramesOf(0);
  const auto receiver = Make(/*upstream=*/true);
  const MonoTime before = Now();
  receiver->OnFrame(transport::Lane::kBulk, frames[0]);
  EXPECT_EQ(receiver->TakeUse().received_bytes, 0u);
  uint64_t behind = 0;
  for (size_t chunk = 1; chunk < frames.size(); ++chunk) {
    receiver->OnFrame(transport::Lane::kBulk, frames[chunk]);
    behind += frames[chunk].size() + wire::kLinkHeaderBytes;
  }
  const PortUse use = receiver->TakeUse();
  EXPECT_EQ(use.received_bytes, behind);
  EXPECT_GT(use.receive_time, absl::ZeroDuration());
  EXPECT_LE(use.receive_time, Now() - before);
  EXPECT_EQ(receiver->TakeUse().received_bytes, 0u);
  Drain();
}

// The plan was made for 1 kbit/s and a round trip of 10 s.
TEST_F(BoundaryPortTest, AFasterLineGetsMoreCredits) {
  shape_.tokens = 768;
  const auto receiver = Make(/*upstream=*/true);
  const auto link = std::make_shared<RecordingLink>();
  receiver->Attach(link);
  const auto frames = FramesOf(0);
  for (size_t step = 1; step <= LinkCredits::kSteps; ++step) {
    EXPECT_TRUE(link->credits.empty());
    for (std::vector<std::byte> frame : frames) {
      wire::TensorHeader header =
          *wire::DecodeTensorHeader(std::span(frame).first<wire::kTensorHeaderBytes>());
      header.step = Step(step);
      wire::EncodeTensorHeader(header, std::span(frame).first<wire::kTensorHeaderBytes>());
      receiver->OnFrame(transport::Lane::kBulk, frame);
    }
    receiver->TakeUse();
  }
  ASSERT_EQ(link->credits.size(), 1u);
  EXPECT_GT(link->credits[0], kPlanned.count());
  Drain();
}

// The plan's round trip may be that of another way.
TEST_F(BoundaryPortTest, AHealedLinkHasTheUsualCredits) {
  const auto receiver = Make(/*upstream=*/true);
  receiver->OnHealed(absl::Seconds(1), 0);  // before there is one
  const auto link = std::make_shared<RecordingLink>();
  receiver->Attach(link);
  receiver->OnHealed(absl::Seconds(1), 0);
  EXPECT_EQ(link->credits, std::vector<uint32_t>{transport::kDefaultCredits});
}

TEST_F(BoundaryPortTest, BoundaryTensorsAreDumpedAsTheyAreSent) {
  const testing::TempDir folder;
  const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("fixed:bits=3"));
  const auto port = BoundaryPort::Create(
      {.stamp = Stamp(1),
       .epoch = Epoch(1),
       .edge = EdgeId(4),
       .upstream = true,
       .shape = shape_,
       .microbatches = 2,
       .send_codec = codec,
       .receive_codec = codec,
       .dump = std::make_shared<const BoundaryDump>(
           BoundaryDumpOptions{.folder = folder.path(), .every = 3}, RunId("run"))},
      &codec_thread_, events_);
  port->Attach(std::make_shared<RecordingLink>());
  auto values = std::make_shared<std::vector<float>>(kShape.elements());
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i) * 0.37f;
  for (const auto& [pass, microbatch] :
       {std::pair{Pass{Step(2)}, 0u}, std::pair{Pass{Step(3)}, 0u}, std::pair{Pass{Step(3)}, 1u},
        std::pair{Pass{Step(3), PassKind::kValidation}, 0u}}) {
    port->SendTensor(pass, Microbatch(microbatch),
                     {{values->data(), codec::Dtype::kF32, kShape}, values});
  }
  Drain();
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  const std::string expected = folder.path() + "/run/step000003-boundary4-backward.npy";
  ASSERT_EQ(files, std::vector{expected});
  const auto file = ReadFile(expected);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto array = codec::ParseNpy(std::as_bytes(std::span(*file)), /*bf16=*/false);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->shape, kShape);
  EXPECT_EQ(std::memcmp(array->data.span().data(), values->data(), array->data.size()), 0);
}

// The first validation goes through the codec; only the clean one after it arrives as it was sent.
TEST_F(BoundaryPortTest, CleanValidationHasACodecOfItsOwn) {
  const auto make = [&](bool upstream) {
    BoundaryPortOptions options = Options(upstream, "fixed:bits=3");
    options.clean_codec = *codec::ParseCodec("none");
    return BoundaryPort::Create(std::move(options), &codec_thread_, events_);
  };
  const auto sender = make(/*upstream=*/false), receiver = make(/*upstream=*/true);
  const auto link = std::make_shared<RecordingLink>();
  sender->Attach(link);
  auto values = std::make_shared<std::vector<float>>(kShape.elements());
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i % 97) * 0.37f;
  for (const PassKind kind : {PassKind::kValidation, PassKind::kCleanValidation}) {
    sender->SendTensor({Step(2), kind}, Microbatch(0),
                       {{values->data(), codec::Dtype::kF32, kShape}, values});
  }
  Drain();
  for (const auto& [lane, frame] : link->Take()) receiver->OnFrame(lane, frame);
  Drain();
  const auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 2u);
  for (const PipelineEvent& event : events) {
    const auto* arrived = std::get_if<TensorArrived>(&event);
    ASSERT_NE(arrived, nullptr);
    const bool clean = arrived->pass == Pass{Step(2), PassKind::kCleanValidation};
    EXPECT_TRUE(clean || arrived->pass == (Pass{Step(2), PassKind::kValidation}));
    const bool same =
        std::memcmp(arrived->tensor.view.data, values->data(), values->size() * sizeof(float)) == 0;
    EXPECT_EQ(same, clean);
  }
}

// Token ids follow a blob whose codec knows none, but in clean validations; wrong ones are refused.
TEST_F(BoundaryPortTest, TokensAreCarriedBehindBlobs) {
  const auto make = [&](bool upstream, uint32_t vocabulary) {
    BoundaryPortOptions options = Options(upstream, "fixed:bits=8");
    options.clean_codec = *codec::ParseCodec("none");
    options.carried_vocabulary = vocabulary;
    return BoundaryPort::Create(std::move(options), &codec_thread_, events_);
  };
  for (const uint32_t vocabulary : {60000u, 70000u}) {
    const auto sender = make(/*upstream=*/false, vocabulary);
    EXPECT_TRUE(sender->wants_tokens());
    const auto link = std::make_shared<RecordingLink>();
    sender->Attach(link);
    auto values = std::make_shared<std::vector<float>>(kShape.elements(), 0.25f);
    std::vector<uint32_t> ids(kShape.tokens);
    for (uint32_t i = 0; i < kShape.tokens; ++i) ids[i] = vocabulary - 1 - i * 7;
    for (const PassKind kind : {PassKind::kTraining, PassKind::kCleanValidation}) {
      sender->SendTensor({Step(1), kind}, Microbatch(0),
                         {{values->data(), codec::Dtype::kF32, kShape},
                          values,
                          std::make_shared<const std::vector<uint32_t>>(ids)});
    }
    Drain();
    const auto frames = link->Take();
    const auto receiver = make(/*upstream=*/true, vocabulary);
    for (const auto& [lane, frame] : frames) receiver->OnFrame(lane, frame);
    Drain();
    const auto events = events_->TakeAll();
    ASSERT_EQ(events.size(), 2u);
    const auto* arrived = std::get_if<TensorArrived>(&events[0]);
    const auto* clean = std::get_if<TensorArrived>(&events[1]);
    ASSERT_TRUE(arrived != nullptr && clean != nullptr);
    EXPECT_EQ(*arrived->tensor.token_ids, ids);
    EXPECT_NEAR(static_cast<const float*>(arrived->tensor.view.data)[5], 0.25f, 0.001f);
    EXPECT_EQ(clean->tensor.token_ids, nullptr);
    // A receiver with a smaller vocabulary gets ids that it does not have.
    const auto smaller = make(/*upstream=*/true, vocabulary - 1);
    smaller->OnFrame(frames[0].first, frames[0].second);
    Drain();
    ExpectFailure("expected token ids below");
  }
}

// The peer's first tensor may be there before anybody who waits for its word has woken up.
TEST_F(BoundaryPortTest, TablesThatThePeerDoesNotHaveAreForgottenAheadOfItsTensors) {
  const auto codec =
      std::shared_ptr<const codec::Codec>(*codec::ParseCodec("predict:pairs=0/none"));
  const auto none = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("none"));
  const codec::Shape shape{1, 4, 32};
  const auto make = [&](bool upstream) {
    const auto& send = upstream ? none : codec;
    const auto& receive = upstream ? codec : none;
    return BoundaryPort::Create(
        {.stamp = Stamp(1),
         .epoch = Epoch(1),
         .edge = EdgeId(0),
         .upstream = upstream,
         .shape = shape,
         .microbatches = 1,
         .validation_microbatches = 0,
         .send_codec = send,
         .receive_codec = receive,
         .codec = BoundaryCodec::Create(
             {.shape = shape, .send = send, .receive = receive, .vocabulary = 5}),
         .layers_before = 2,
         .start_step = 1},
        &codec_thread_, events_);
  };
  // What the sender says and sends, knowing nothing.
  const auto sender = make(/*upstream=*/false), receiver = make(/*upstream=*/true);
  const auto sent = std::make_shared<RecordingLink>(), said = std::make_shared<RecordingLink>();
  sender->Attach(sent);
  receiver->Attach(said);
  std::atomic<bool> give_up = false;
  auto agreed = std::async(std::launch::async, [&] {
    return sender->AgreeOnMessages(Deadline::After(absl::Seconds(30)),
                                   [&] { return give_up.load(); });
  });
  std::vector<std::pair<transport::Lane, std::vector<std::byte>>> frames;
  while (frames.empty()) frames = sent->Take();
  auto values = std::make_shared<std::vector<float>>(shape.elements(), 1.0f);
  sender->SendTensor({Step(2)}, Microbatch(0),
                     {{values->data(), codec::Dtype::kF32, shape},
                      values,
                      std::make_shared<const std::vector<uint32_t>>(4, 3)});
  Drain();
  for (auto& frame : sent->Take()) frames.push_back(std::move(frame));
  ASSERT_EQ(frames.size(), 2u);
  give_up = true;
  EXPECT_EQ(agreed.get().status().code(), absl::StatusCode::kCancelled);

  auto learned = codec::predict::Tables::Create({.vocabulary = 5, .channels = 32, .pairs = 0});
  ASSERT_TRUE(learned.ok());
  learned->set_check(77);
  ASSERT_TRUE(receiver->RestoreTables(ArraysOf(*learned, 2)).ok());
  // The word is heard while the receiver waits, and the tensor right behind it.
  std::thread link;
  const auto kept = receiver->AgreeOnMessages(Deadline::After(absl::Seconds(30)), [&] {
    if (link.joinable()) return false;
    link = std::thread([&] {
      for (const auto& [lane, frame] : frames) receiver->OnFrame(lane, frame);
    });
    return false;
  });
  link.join();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_FALSE(*kept);
  Drain();
  const auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 1u);
  const auto* arrived = std::get_if<TensorArrived>(&events.front());
  ASSERT_NE(arrived, nullptr) << std::get_if<Failed>(&events.front())->reason;
  EXPECT_EQ(*arrived->tensor.token_ids, std::vector<uint32_t>(4, 3));
}

TEST_F(BoundaryPortTest, StepMessagesGoTheirWay) {
  const auto sender = Make(/*upstream=*/false);
  const auto link = std::make_shared<RecordingLink>();
  sender->Attach(link);
  sender->SendStepMessage(wire::TensorKind::kStepControl, Step(7),
                          {.squared_norm = 2.5, .stop = true});
  const auto frames = link->Take();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].first, transport::Lane::kControl);
  Make(/*upstream=*/true)->OnFrame(transport::Lane::kControl, frames[0].second);
  const auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 1u);
  const auto* control = std::get_if<StepControlArrived>(&events.front());
  ASSERT_NE(control, nullptr);
  EXPECT_EQ(control->step, Step(7));
  EXPECT_EQ(control->message, (wire::StepMessage{.squared_norm = 2.5, .stop = true}));
}

}  // namespace
}  // namespace longhaul::worker
