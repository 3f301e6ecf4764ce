// One stage of two, and a neighbour that the test plays over a loopback link.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/registry.h"
#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/pipeline/no_shards.h"
#include "tests/unit/worker/tiny_run.h"
#include "transport/p2p/loopback/factory.h"
#include "worker/pipeline/executor.h"

namespace longhaul::worker {

class ExecutorTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(30);
  static constexpr uint64_t kNumerics = 7;
  inline static const transport::LinkKey kKey{RunId("tiny"), Stamp(1), EdgeId(0)};

  // Keeps what is written, or refuses to.
  class FakeShards : public NoShards {
   public:
    StatusOr<std::vector<ShardFile>> Write(const RunId&, const ShardOwner&,
                                           const StageSnapshot& snapshot) override {
      if (!refusal.ok()) return refusal;
      steps.Push(snapshot.step);
      return std::vector<ShardFile>{{"stage.params.safetensors", 1, "hash"}};
    }

    Status refusal;
    testing::Mailbox<uint64_t> steps;
  };

  // A text that is for training and for validation.
  class ForBoth final : public WindowSource {
   public:
    explicit ForBoth(std::unique_ptr<WindowSource> text) : text_(std::move(text)) {}
    uint64_t WindowsOf(Text) const override { return text_->WindowsOf(Text::kTraining); }
    Status Read(Text, uint64_t window, std::span<int32_t> inputs,
                std::span<int32_t> targets) override {
      return text_->Read(Text::kTraining, window, inputs, targets);
    }
    void Expect(Text, std::span<const uint64_t>) override {}

   private:
    const std::unique_ptr<WindowSource> text_;
  };

  // `stage` is the one under test, the first or the last of two; its neighbour is what the test
  // plays. With `listener` the neighbour has no port, just the link.
  void Begin(uint32_t stage, const std::vector<std::string>& overrides = {},
             const std::shared_ptr<transport::LinkHandler>& listener = nullptr) {
    spec_ = TinySpec(overrides);
    stage_ = stage;
    auto port = MakePort(/*upstream=*/stage != 0, events_);
    peer_ = MakePort(/*upstream=*/stage == 0, peer_events_);
    const auto links =
        Connect(port, listener ? listener : std::shared_ptr<transport::LinkHandler>(peer_));
    port->Attach(links.first);
    peer_link_ = links.second;
    peer_->Attach(peer_link_);
    const std::string tokens = WriteTinyTokens(folder_.path());
    StatusOr<TokenFile> file = TokenFile::Open(folder_.path() + "/" + tokens, /*verify=*/true);
    ASSERT_TRUE(file.ok()) << file.status();
    if (!resident_) MakeTheModel();
    executor_ = std::make_unique<Executor>(ExecutorOptions{
        .spec = spec_,
        .run = RunId("tiny"),
        .cell = {.stage = stage},
        .stages = 2,
        .setting = {.depth = 2, .activation_lead = activation_lead_},
        .validation_tokens = kTinyTokens,
        .vocabulary = 256,
        .sample_text = SampleText(),
        .numerics = kNumerics,
        .resident = resident_.get(),
        .batches = std::make_unique<Batches>(
            spec_,
            std::make_shared<ForBoth>(WindowsOfFile(
                std::make_shared<const TokenFile>(*std::move(file)), spec_.model.context)),
            nullptr),
        .ports = {port},
        .events = events_,
        .codec_thread = &codec_thread_,
        .shards = &shards_,
        .report = [this](v1::WorkerMessage message) { reports_.Push(std::move(message)); }});
    thread_ = std::thread([this] { result_ = executor_->Run(); });
  }
  void MakeTheModel() {
    auto model = Stage::Create({.model = spec_.model,
                                .train = spec_.train,
                                .vocabulary = 256,
                                .first_layer = stage_ == 0 ? 0u : 1u,
                                .layers = 1,
                                .first = stage_ == 0,
                                .last = stage_ != 0});
    ASSERT_TRUE(model.ok()) << model.status();
    Take(*std::move(model));
    before_ = resident_->model().Snapshot().value();
  }
  void Take(std::unique_ptr<Stage> model) {
    resident_ = std::make_unique<ResidentStage>(ResidentIdentity(), std::move(model));
  }
  Status Result() {
    if (thread_.joinable()) thread_.join();
    return result_;
  }
  void TearDown() override {
    if (thread_.joinable()) {
      executor_->Abort(absl::CancelledError("the test is over"));
      thread_.join();
    }
  }

  // The next T that the neighbour hears. Tensors and step messages travel on lanes of their own, so
  // either kind may come first.
  template <class T>
  T PeerHears() {
    const Deadline deadline = Deadline::After(kPatience);
    while (true) {
      const auto it = std::find_if(heard_.begin(), heard_.end(), [](const PipelineEvent& event) {
        return std::holds_alternative<T>(event);
      });
      if (it != heard_.end()) {
        T event = std::get<T>(std::move(*it));
        heard_.erase(it);
        return event;
      }
      auto more = peer_events_->WaitForAny(deadline);
      if (more.empty()) {
        ADD_FAILURE() << "nothing came";
        return T{};
      }
      std::move(more.begin(), more.end(), std::back_inserter(heard_));
    }
  }
  void PeerSends(uint64_t step, uint32_t microbatch, float value = 0.25f) {
    PeerSends(Pass{Step(step)}, microbatch, value);
  }
  void PeerSends(const Pass& pass, uint32_t microbatch, float value = 0.25f) {
    const codec::Shape shape = BoundaryShape();
    auto values = std::make_shared<std::vector<float>>(shape.elements(), value);
    peer_->SendTensor(pass, Microbatch(microbatch),
                      {{values->data(), codec::Dtype::kF32, shape}, values});
  }
  // The neighbour's part of a step up to and with the sum of squared gradients.
  void PeerIsTheLastStage(uint64_t step, double squared_norm = 1) {
    for (uint32_t i = 0; i < spec_.train.microbatches; ++i) {
      EXPECT_EQ(PeerHears<TensorArrived>().slice, Microbatch(i));
      PeerSends(step, i);
    }
    peer_->SendStepMessage(wire::TensorKind::kNormUp, Step(step), {.squared_norm = squared_norm});
  }
  // And where the neighbour is the first stage, up to and without its decision.
  double PeerIsTheFirstStage(uint64_t step) {
    for (uint32_t i = 0; i < spec_.train.microbatches; ++i) PeerSends(step, i);
    for (uint32_t i = 0; i < spec_.train.microbatches; ++i) {
      EXPECT_EQ(PeerHears<TensorArrived>().slice, Microbatch(i));
    }
    return PeerHears<NormArrived>().message.squared_norm;
  }
  void PeerDecides(uint64_t step, const wire::StepMessage& message) {
    peer_->SendStepMessage(wire::TensorKind::kStepControl, Step(step), message);
  }

  // Nothing of the model has changed.
  void ExpectNoUpdate() {
    const StageSnapshot after = resident_->model().Snapshot().value();
    ASSERT_EQ(after.parameters.size(), before_.parameters.size());
    for (size_t i = 0; i < after.parameters.size(); ++i) {
      EXPECT_EQ(after.parameters[i].values, before_.parameters[i].values)
          << after.parameters[i].name;
    }
  }
  // The reports so far, without StageStarted.
  std::vector<v1::WorkerMessage> Reports() {
    std::vector<v1::WorkerMessage> reports;
    while (!reports_.empty()) {
      reports.push_back(*reports_.Take());
      if (reports.back().has_stage_started()) reports.pop_back();
    }
    return reports;
  }

  codec::Shape BoundaryShape() const {
    return {spec_.train.microbatch_size, spec_.model.context, spec_.model.hidden};
  }
  std::shared_ptr<BoundaryPort> MakePort(bool upstream, const std::shared_ptr<EventQueue>& events) {
    const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec("none"));
    return BoundaryPort::Create(
        {.stamp = kKey.stamp,
         .epoch = Epoch(1),
         .edge = kKey.edge,
         .peer = {.stage = upstream ? 0u : 1u},
         .upstream = upstream,
         .shape = BoundaryShape(),
         .microbatches = spec_.train.microbatches,
         .validation_microbatches = ValidationMicrobatches(spec_, kTinyTokens),
         .sampling_microbatches = kMostSamplePrompts,
         .send_codec = codec,
         .receive_codec = codec,
         .on_health = [](const LinkHealth&) {}},
        &codec_thread_, events);
  }
  // An open link between two handlers.
  std::pair<std::shared_ptr<transport::Link>, std::shared_ptr<transport::Link>> Connect(
      std::shared_ptr<transport::LinkHandler> mine, std::shared_ptr<transport::LinkHandler> peers) {
    testing::Mailbox<std::shared_ptr<transport::Link>> expected, dialled;
    const auto into = [](testing::Mailbox<std::shared_ptr<transport::Link>>& mailbox) {
      return [&mailbox](const StatusOr<std::shared_ptr<transport::Link>>& link) {
        EXPECT_TRUE(link.ok()) << link.status();
        mailbox.Push(link.value_or(nullptr));
      };
    };
    const Deadline deadline = Deadline::After(kPatience);
    transport_->Expect(kKey, "a secret", std::move(mine), {}, deadline, into(expected));
    peer_transport_->Dial({transport_->address()}, kKey, "a secret", std::move(peers), {}, deadline,
                          into(dialled));
    return {expected.Take().value_or(nullptr), dialled.Take().value_or(nullptr)};
  }

  static std::unique_ptr<transport::Transport> NewTransport() {
    auto transport = transport::loopback::CreateTransport({});
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }

  uint32_t activation_lead_ = 0;
  testing::TempDir folder_;
  RunSpec spec_;
  uint32_t stage_ = 0;
  CodecThread codec_thread_;  // outlives the transports
  FakeShards shards_;
  std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  std::shared_ptr<EventQueue> peer_events_ = std::make_shared<EventQueue>();
  std::deque<PipelineEvent> heard_;
  std::unique_ptr<transport::Transport> transport_ = NewTransport();
  std::unique_ptr<transport::Transport> peer_transport_ = NewTransport();
  std::shared_ptr<BoundaryPort> peer_;
  std::shared_ptr<transport::Link> peer_link_;
  std::unique_ptr<ResidentStage> resident_;
  StageSnapshot before_;
  testing::Mailbox<v1::WorkerMessage> reports_;
  std::unique_ptr<Executor> executor_;
  Status result_;
  std::thread thread_;
};

}  // namespace longhaul::worker
