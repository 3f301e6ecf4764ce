// Two ports whose codec remembers samples: what they agree on, and that what arrives follows it.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "codec/registry.h"
#include "run/boundary/message_footprint.h"
#include "worker/pipeline/boundary_port.h"

namespace longhaul::worker {
namespace {

namespace fs = std::filesystem;

constexpr codec::Shape kMessageShape{2, 8, 64};
constexpr uint64_t kWindows = 6;

RunSpec Spec() {
  RunSpec spec;
  spec.name = "tiny";
  spec.model = {.layers = 4, .hidden = 64, .heads = 1, .context = 8};
  spec.train.steps = 10;
  spec.train.microbatches = 2;
  spec.train.microbatch_size = 2;
  return spec;
}

// Hands every frame to the other side at once.
class Wire : public transport::Link {
 public:
  explicit Wire(std::weak_ptr<BoundaryPort> peer) : peer_(std::move(peer)) {}
  const transport::LinkKey& key() const override { return key_; }
  void Send(transport::Lane lane, const transport::FrameView& frame, SendDone done) override {
    std::vector<std::byte> bytes(frame.header.begin(), frame.header.end());
    bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
    if (const auto peer = peer_.lock()) peer->OnFrame(lane, bytes);
    done(absl::OkStatus());
  }
  void Close(Deadline) override {}
  void GrowCredits(uint32_t) override {}
  transport::LinkStats stats() const override { return {}; }
  std::string Describe() const override { return "wire"; }

 private:
  transport::LinkKey key_{RunId("run"), Stamp(1), EdgeId(0)};
  std::weak_ptr<BoundaryPort> peer_;
};

class MessagesTest : public ::testing::Test {
 protected:
  MessagesTest() {
    std::string pattern = (fs::temp_directory_path() / "messages-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~MessagesTest() override {
    End();
    fs::remove_all(folder_);
  }

  BoundaryMessagesOptions OptionsOf(bool upstream, uint64_t start_step) {
    return {.root = folder_ + (upstream ? "/lower" : "/upper"),
            .spec = Spec(),
            .run = RunId("run"),
            .layers_before = 2,
            .upstream = upstream,
            .windows = kWindows,
            .before = {start_step, start_step * Spec().train.microbatches},
            .forward = forward_.get(),
            .backward = backward_.get()};
  }

  std::shared_ptr<BoundaryPort> Make(bool upstream, uint64_t start_step) {
    auto messages = BoundaryMessages::Open(OptionsOf(upstream, start_step));
    EXPECT_TRUE(messages.ok()) << messages.status();
    return BoundaryPort::Create({.stamp = Stamp(1),
                                 .epoch = Epoch(1),
                                 .edge = EdgeId(0),
                                 .upstream = upstream,
                                 .shape = kMessageShape,
                                 .microbatches = 2,
                                 .validation_microbatches = 1,
                                 .send_codec = upstream ? backward_ : forward_,
                                 .receive_codec = upstream ? forward_ : backward_,
                                 .clean_codec = clean_,
                                 .messages = *std::move(messages)},
                                &codec_thread_, events_);
  }

  // Both sides begin after `start_step`. What they agreed on.
  std::pair<bool, bool> Begin(uint64_t start_step) {
    End();
    upper_ = Make(/*upstream=*/false, start_step);
    lower_ = Make(/*upstream=*/true, start_step);
    upper_->Attach(std::make_shared<Wire>(lower_));
    lower_->Attach(std::make_shared<Wire>(upper_));
    const auto agree = [](const std::shared_ptr<BoundaryPort>& port) {
      const auto kept =
          port->AgreeOnMessages(Deadline::After(absl::Seconds(30)), [] { return false; });
      EXPECT_TRUE(kept.ok()) << kept.status();
      return kept.ok() && *kept;
    };
    auto other = std::async(std::launch::async, agree, lower_);
    const bool upper = agree(upper_);
    return {upper, other.get()};
  }

  void End() {
    for (const auto& port : {upper_, lower_}) {
      if (port) port->Close(Deadline::After(absl::Seconds(1)));
    }
    upper_.reset();
    lower_.reset();
  }

  // The activations of a step, as the lower stage has them.
  std::vector<std::vector<float>> RunStep(uint64_t step, PassKind kind = PassKind::kTraining) {
    std::vector<std::vector<float>> out;
    for (uint32_t microbatch = 0; microbatch < (kind == PassKind::kTraining ? 2 : 1);
         ++microbatch) {
      auto values = std::make_shared<std::vector<float>>(kMessageShape.elements());
      for (size_t k = 0; k < values->size(); ++k) {
        (*values)[k] = static_cast<float>((k * 37 + microbatch * 11 + step * step * 5) % 101) / 7;
      }
      upper_->SendTensor({Step(step), kind}, Microbatch(microbatch),
                         {{values->data(), codec::Dtype::kF32, kMessageShape}, values});
      while (out.size() == microbatch) {
        for (PipelineEvent& event : events_->WaitForAny(Deadline::After(absl::Seconds(30)))) {
          if (const auto* failed = std::get_if<Failed>(&event)) {
            ADD_FAILURE() << failed->reason;
            return out;
          }
          const auto* arrived = std::get_if<TensorArrived>(&event);
          if (arrived == nullptr) continue;
          const auto* from = static_cast<const float*>(arrived->tensor.view.data);
          out.emplace_back(from, from + kMessageShape.elements());
        }
      }
    }
    return out;
  }

  std::string folder_;
  std::shared_ptr<const codec::Codec> forward_{*codec::ParseCodec("aqsgd:bits=3")};
  std::shared_ptr<const codec::Codec> backward_{*codec::ParseCodec("fixed:bits=8")};
  std::shared_ptr<const codec::Codec> clean_{*codec::ParseCodec("none")};
  CodecThread codec_thread_;
  std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  std::shared_ptr<BoundaryPort> upper_, lower_;
};

using Kept = std::pair<bool, bool>;

TEST_F(MessagesTest, AResumeRepeatsTheUnbrokenRunBitByBit) {
  std::vector<std::vector<std::vector<float>>> unbroken;
  EXPECT_EQ(Begin(0), Kept(true, true));
  for (uint64_t step = 1; step <= 8; ++step) {
    unbroken.push_back(RunStep(step));
    // Between the steps, and nothing that is remembered.
    RunStep(step, PassKind::kValidation);
    RunStep(step, PassKind::kCleanValidation);
  }
  for (const uint64_t start : {uint64_t{5}, uint64_t{3}, uint64_t{0}}) {
    EXPECT_EQ(Begin(start), Kept(true, true));
    for (uint64_t step = start + 1; step <= 8; ++step) {
      EXPECT_EQ(RunStep(step), unbroken[step - 1]) << "from " << start << ", step " << step;
    }
  }
}

TEST_F(MessagesTest, WhatOneSideLostBothForget) {
  Begin(0);
  for (uint64_t step = 1; step <= 4; ++step) RunStep(step);
  for (const std::string side : {"/upper", "/lower"}) {
    End();
    fs::remove_all(folder_ + side);
    EXPECT_EQ(Begin(4), Kept(false, false));
    for (uint64_t step = 5; step <= 8; ++step) RunStep(step);
    EXPECT_EQ(Begin(6), Kept(true, true)) << "from then on they remember again";
    EXPECT_EQ(Begin(4), Kept(false, false)) << "there was nothing at step 4";
  }
}

TEST_F(MessagesTest, BothLostIsSaidToo) {
  Begin(0);
  RunStep(1);
  End();
  fs::remove_all(folder_);
  EXPECT_EQ(Begin(1), Kept(false, false));
}

TEST_F(MessagesTest, AnotherCodecBeginsAnew) {
  Begin(0);
  RunStep(1);
  End();
  forward_ = *codec::ParseCodec("aqsgd:bits=4");
  EXPECT_EQ(Begin(1), Kept(false, false));
}

TEST_F(MessagesTest, ForgottenStepsFreeTheJournal) {
  Begin(0);
  for (uint64_t step = 1; step <= 5; ++step) RunStep(step);
  const auto journals = [&] {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      count += entry.path().filename().string().starts_with("undo-") ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(journals(), 10u);
  upper_->ForgetMessages(Step(3));
  lower_->ForgetMessages(Step(3));
  EXPECT_EQ(journals(), 4u);
  EXPECT_EQ(Begin(3), Kept(true, true));
}

TEST_F(MessagesTest, BuffersAreAsLargeAsPredicted) {
  Begin(0);
  const MessageFootprint footprint =
      FootprintOf(Spec(), kWindows, forward_->MessageBytes(kMessageShape), Direction::kForward);
  for (uint64_t step = 1; step <= 10; ++step) RunStep(step);
  uint64_t records = 0, journal = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ + "/upper")) {
    if (!entry.is_regular_file()) continue;
    (entry.path().filename() == "records" ? records : journal) += entry.file_size();
  }
  EXPECT_EQ(records, footprint.records);
  EXPECT_LE(journal, footprint.journal);
  EXPECT_GT(journal, 0u);
  End();
  BoundaryMessages::Drop(folder_ + "/upper", RunId("run"));
  EXPECT_FALSE(fs::exists(folder_ + "/upper/run"));
}

TEST_F(MessagesTest, CodecsWithoutStateKeepNothing) {
  forward_ = *codec::ParseCodec("tah");
  const auto messages = BoundaryMessages::Open(OptionsOf(false, 0));
  ASSERT_TRUE(messages.ok()) << messages.status();
  EXPECT_EQ(*messages, nullptr);
  EXPECT_EQ(Begin(0), Kept(true, true));
  EXPECT_FALSE(fs::exists(folder_ + "/upper"));
}

TEST_F(MessagesTest, APeerThatSaysItTwiceOrUnaskedIsRefused) {
  Begin(0);
  lower_->AgreeOnMessages(Deadline::After(absl::Seconds(1)), [] { return true; })
      .status()
      .IgnoreError();
  const auto events = events_->TakeAll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(std::get_if<Failed>(&events.front()), nullptr);
}

TEST_F(MessagesTest, WaitingForThePeerEnds) {
  lower_ = Make(/*upstream=*/true, 0);
  EXPECT_EQ(lower_->AgreeOnMessages(Deadline::After(absl::Milliseconds(1)), [] { return false; })
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      lower_->AgreeOnMessages(Deadline::After(absl::Hours(1)), [] { return true; }).status().code(),
      absl::StatusCode::kCancelled);
  lower_->OnClosed(absl::UnavailableError("gone"));
  EXPECT_EQ(lower_->AgreeOnMessages(Deadline::After(absl::Hours(1)), [] { return false; })
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(MessagesTest, NamesFromElsewhereLeadOutOfNoFolder) {
  BoundaryMessagesOptions options = OptionsOf(false, 0);
  options.run = RunId("../run");
  EXPECT_EQ(BoundaryMessages::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longhaul::worker
