// A pipeline of three stages trains and records. Each stage's steps, computed again from the
// recording, give the same reports and the same state, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
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
#include "worker/audit/recorded_transport.h"
#include "worker/pipeline/executor.h"

namespace longhaul::worker {
namespace {

constexpr uint32_t kStages = 3;
constexpr uint64_t kSteps = 4, kWindow = 2;

// Keeps snapshots and recordings in memory, and describes the files that they would be.
class MemoryShards final : public NoShards {
 public:
  StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                         const StageSnapshot& snapshot) override {
    snapshots[snapshot.step] = std::make_shared<const StageSnapshot>(snapshot);
    files[snapshot.step] = DescribeShards(run, owner, snapshot);
    return files[snapshot.step];
  }
  StatusOr<ShardFile> WriteInputs(const RunId&, const ShardOwner&, Step step,
                                  std::span<const std::byte> bytes) override {
    recordings[step.value()].assign(bytes.begin(), bytes.end());
    return ShardFile{"inputs.bin", bytes.size(), "hash"};
  }
  std::map<uint64_t, SharedSnapshot> snapshots;
  std::map<uint64_t, std::vector<ShardFile>> files;
  std::map<uint64_t, std::vector<std::byte>> recordings;
};

// One stage with everything that it needs.
struct Node {
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>();
  CodecThread codec_thread;
  MemoryShards shards;
  std::unique_ptr<transport::Transport> transport;
  std::vector<std::shared_ptr<BoundaryPort>> ports;
  std::unique_ptr<ResidentStage> resident;
  testing::Mailbox<v1::WorkerMessage> reports;
  std::unique_ptr<Executor> executor;
  std::vector<v1::StepReport> Steps() {
    std::vector<v1::StepReport> steps;
    while (!reports.empty()) {
      const auto message = reports.Take();
      if (message->has_step()) steps.push_back(message->step());
    }
    return steps;
  }
};

struct Case {
  std::string forward, backward;
  uint32_t slices = 1;
};

class RecordedStepsTest : public ::testing::TestWithParam<Case> {
 protected:
  RecordedStepsTest()
      : spec_(TinySpec(
            {"model.layers=3", "model.hidden=64", "model.context=128", "train.microbatch_size=2",
             "train.microbatches=2", fmt::format("train.steps={}", kSteps), "pipeline.stages=3",
             fmt::format("pipeline.slices={}", GetParam().slices), "verify.digests=sha256"})),
        forward_(*codec::ParseCodec(GetParam().forward)),
        backward_(*codec::ParseCodec(GetParam().backward)),
        tokens_(WriteTinyTokens(folder_.path())) {}

  std::unique_ptr<Stage> MakeModel(uint32_t stage) const {
    auto model = Stage::Create({.model = spec_.model,
                                .train = spec_.train,
                                .vocabulary = 256,
                                .first_layer = stage,
                                .layers = 1,
                                .first = stage == 0,
                                .last = stage + 1 == kStages,
                                .slices = spec_.pipeline.SlicesNow()});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::shared_ptr<WindowSource> Text() const {
    auto file = TokenFile::Open(folder_.path() + "/" + tokens_, /*verify=*/true);
    EXPECT_TRUE(file.ok()) << file.status();
    return WindowsOfFile(std::make_shared<const TokenFile>(*std::move(file)), spec_.model.context);
  }
  std::string MessagesRoot(const std::string& whose) const { return folder_.path() + "/" + whose; }

  // The port of `stage` on the edge after stage `edge`.
  std::shared_ptr<BoundaryPort> MakePort(Node& node, uint32_t stage, uint32_t edge,
                                         const std::string& whose, uint64_t start_step,
                                         std::shared_ptr<InputRecorder> recorder) {
    const bool upstream = edge + 1 == stage;
    auto messages =
        BoundaryMessages::Open({.root = MessagesRoot(whose),
                                .spec = spec_,
                                .run = RunId("tiny"),
                                .layers_before = edge + 1,
                                .upstream = upstream,
                                .windows = Text()->WindowsOf(longhaul::worker::Text::kTraining),
                                .before = {start_step, start_step * spec_.train.microbatches},
                                .forward = forward_.get(),
                                .backward = backward_.get()});
    EXPECT_TRUE(messages.ok()) << messages.status();
    const codec::Shape shape = {spec_.train.microbatch_size,
                                spec_.model.context / spec_.pipeline.SlicesNow(),
                                spec_.model.hidden};
    const auto send = upstream ? backward_ : forward_, receive = upstream ? forward_ : backward_;
    return BoundaryPort::Create(
        {.stamp = Stamp(1),
         .epoch = Epoch(1),
         .edge = EdgeId(edge),
         .peer = {.stage = upstream ? edge : edge + 1},
         .upstream = upstream,
         .shape = shape,
         .microbatches = spec_.train.microbatches,
         .slices = spec_.pipeline.SlicesNow(),
         .send_codec = send,
         .receive_codec = receive,
         .codec = BoundaryCodec::Create(
             {.shape = shape, .send = send, .receive = receive, .vocabulary = 256}),
         .recorder = std::move(recorder),
         .messages = *std::move(messages),
         .layers_before = edge + 1,
         .start_step = start_step,
         .digests = std::make_shared<MessageDigests>(DigestKind::kSha256)},
        &node.codec_thread, node.events);
  }

  // Makes the ports and the executor of a stage; Connect and Train are missing.
  std::unique_ptr<Node> MakeNode(uint32_t stage, uint64_t start_step, const std::string& whose,
                                 bool records) {
    auto node = std::make_unique<Node>();
    node->resident = std::make_unique<ResidentStage>(ResidentIdentity(), MakeModel(stage));
    recorder_ = records ? std::make_shared<InputRecorder>(Step(start_step)) : nullptr;
    for (uint32_t edge = 0; edge + 1 < kStages; ++edge) {
      if (edge != stage && edge + 1 != stage) continue;
      node->ports.push_back(MakePort(*node, stage, edge, whose, start_step, recorder_));
    }
    return node;
  }
  void MakeExecutor(Node& node, uint32_t stage, uint64_t start_step, std::optional<Step> ends) {
    const bool reads = stage == 0 || stage + 1 == kStages;
    node.executor = std::make_unique<Executor>(ExecutorOptions{
        .spec = spec_,
        .run = RunId("tiny"),
        .cell = {.stage = stage},
        .stages = kStages,
        .setting = {.depth = 2},
        .start_step = start_step,
        .copy_every = kWindow,
        .ends_after = ends,
        .vocabulary = 256,
        .numerics = 7,
        .resident = node.resident.get(),
        .batches = reads ? std::make_unique<Batches>(
                               spec_, Text(), nullptr, 0,
                               ReadSoFar{start_step, start_step * spec_.train.microbatches})
                         : nullptr,
        .ports = node.ports,
        .events = node.events,
        .recorder = recorder_,
        .codec_thread = &node.codec_thread,
        .shards = &node.shards,
        .report = [&node](v1::WorkerMessage message) { node.reports.Push(std::move(message)); },
        .digests = std::make_shared<const DigestSigner>(RunId("tiny"), Epoch(1), Stamp(1),
                                                        CellId{.stage = stage}, nullptr)});
  }
  static void Agree(Node& node) {
    for (const auto& port : node.ports) {
      EXPECT_TRUE(
          port->AgreeOnMessages(Deadline::After(absl::Seconds(30)), [] { return false; }).ok());
    }
  }
  static std::shared_ptr<transport::Link> Open(transport::Transport& transport, bool dials,
                                               const std::string& address, EdgeId edge,
                                               std::shared_ptr<BoundaryPort> port) {
    testing::Mailbox<std::shared_ptr<transport::Link>> opened;
    transport.Open(dials, {address}, {RunId("tiny"), Stamp(1), edge}, "a secret", std::move(port),
                   {}, Deadline::After(absl::Seconds(30)),
                   [&](StatusOr<std::shared_ptr<transport::Link>> link) {
                     EXPECT_TRUE(link.ok()) << link.status();
                     opened.Push(link.value_or(nullptr));
                   });
    return opened.Take().value_or(nullptr);
  }

  // Trains the whole run, and keeps what each stage reported, saved and received.
  void TrainAll() {
    std::vector<std::thread> threads;
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      nodes_.push_back(MakeNode(stage, 0, fmt::format("stage{}", stage), /*records=*/true));
      MakeExecutor(*nodes_.back(), stage, 0, std::nullopt);
      nodes_.back()->transport = *transport::loopback::CreateTransport({});
    }
    for (uint32_t edge = 0; edge + 1 < kStages; ++edge) {
      Node &above = *nodes_[edge], &below = *nodes_[edge + 1];
      std::shared_ptr<transport::Link> expected;
      std::thread expects(
          [&] { expected = Open(*above.transport, false, "", EdgeId(edge), above.ports.back()); });
      below.ports.front()->Attach(Open(*below.transport, true, above.transport->address(),
                                       EdgeId(edge), below.ports.front()));
      expects.join();
      above.ports.back()->Attach(expected);
    }
    for (const auto& node : nodes_) {
      threads.emplace_back([&node] {
        Agree(*node);
        EXPECT_EQ(node->executor->Run(), absl::OkStatus());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& node : nodes_) said_.push_back(node->Steps());
    for (const auto& node : nodes_) Close(*node);
  }
  static void Close(Node& node) {
    for (const auto& port : node.ports) port->Close(Deadline::After(absl::Seconds(5)));
    node.executor.reset();
    node.transport.reset();
  }

  // Computes the steps after `from` of a stage again.
  std::unique_ptr<Node> ComputeAgain(uint32_t stage, uint64_t from) {
    const MemoryShards& kept = nodes_[stage]->shards;
    // The codecs' memory of samples, as it was when the run ended: Open takes it back.
    const std::string whose = fmt::format("auditor{}-{}", stage, from);
    std::error_code ignored;
    std::filesystem::copy(MessagesRoot(fmt::format("stage{}", stage)), MessagesRoot(whose),
                          std::filesystem::copy_options::recursive, ignored);
    auto node = MakeNode(stage, from, whose, /*records=*/false);
    MakeExecutor(*node, stage, from, Step(from + kWindow));
    if (from > 0) {
      EXPECT_EQ(
          node->resident->BeginFrom(OriginOf(from, kept.files.at(from)), kept.snapshots.at(from)),
          absl::OkStatus());
      for (const auto& port : node->ports) {
        for (const auto& [step, snapshot] : nodes_[stage == 0 ? 0 : stage - 1]->shards.snapshots) {
          if (step != from) continue;
          EXPECT_EQ(port->RestoreTables(snapshot->tables), absl::OkStatus());
        }
        EXPECT_EQ(port->RestoreTables(kept.snapshots.at(from)->tables), absl::OkStatus());
      }
    }
    const auto recording = ReadRecording(kept.recordings.at(from + kWindow));
    EXPECT_TRUE(recording.ok()) << recording.status();
    auto recorded = std::make_unique<RecordedTransport>(*recording, Epoch(1), Stamp(1));
    RecordedTransport& plays = *recorded;
    for (const auto& port : node->ports) {
      port->Attach(Open(plays, true, "", port->edge(), port));
    }
    node->transport = std::move(recorded);
    Agree(*node);
    plays.Play();
    EXPECT_EQ(node->executor->Run(), absl::OkStatus());
    return node;
  }

  // What has to be the same: all but times.
  static v1::StepReport Results(const v1::StepReport& report) {
    v1::StepReport results;
    results.set_step(report.step());
    results.set_loss(report.loss());
    results.set_gradient_norm(report.gradient_norm());
    results.set_squared_norm(report.squared_norm());
    results.set_learning_rate(report.learning_rate());
    v1::DigestBody body;
    EXPECT_TRUE(body.ParseFromString(report.digests().body()));
    body.clear_state_before();  // an attempt's first step has none
    results.mutable_digests()->set_body(body.SerializeAsString());
    return results;
  }

  const testing::TempDir folder_;
  const RunSpec spec_;
  const std::shared_ptr<const codec::Codec> forward_, backward_;
  const std::string tokens_;
  std::shared_ptr<InputRecorder> recorder_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::vector<v1::StepReport>> said_;  // by stage
};

TEST_P(RecordedStepsTest, AreTheSameWhenComputedAgain) {
  TrainAll();
  if (HasFailure()) return;
  for (uint32_t stage = 0; stage < kStages; ++stage) {
    ASSERT_EQ(said_[stage].size(), kSteps);
    for (const uint64_t from : {uint64_t{0}, uint64_t{kWindow}}) {
      SCOPED_TRACE(fmt::format("stage {} from step {}", stage, from));
      const auto node = ComputeAgain(stage, from);
      const std::vector<v1::StepReport> again = node->Steps();
      ASSERT_EQ(again.size(), kWindow);
      for (size_t i = 0; i < again.size(); ++i) {
        EXPECT_EQ(Results(again[i]).DebugString(), Results(said_[stage][from + i]).DebugString());
      }
      const auto& files = node->shards.files.at(from + kWindow);
      const auto& before = nodes_[stage]->shards.files.at(from + kWindow);
      ASSERT_EQ(files.size(), before.size());
      for (size_t i = 0; i < files.size(); ++i) {
        EXPECT_EQ(files[i].sha256, before[i].sha256) << files[i].name;
      }
      Close(*node);
    }
  }
}

// The comparison sees a single bit.
class OneBitTest : public RecordedStepsTest {};
INSTANTIATE_TEST_SUITE_P(Codecs, OneBitTest, ::testing::Values(Case{"none", "none"}));

TEST_P(OneBitTest, OfTheRecordingMakesOtherReports) {
  TrainAll();
  if (HasFailure()) return;
  std::vector<std::byte>& recording = nodes_[1]->shards.recordings.at(kWindow);
  const auto messages = ReadRecording(recording);
  ASSERT_TRUE(messages.ok()) << messages.status();
  // The last byte of the first tensor.
  recording[wire::kTensorHeaderBytes + messages->front().body.size() - 1] ^= std::byte{1};
  const auto node = ComputeAgain(1, 0);
  const std::vector<v1::StepReport> again = node->Steps();
  ASSERT_EQ(again.size(), kWindow);
  EXPECT_NE(Results(again[0]).DebugString(), Results(said_[1][0]).DebugString());
  Close(*node);
}

INSTANTIATE_TEST_SUITE_P(Codecs, RecordedStepsTest,
                         ::testing::Values(Case{"tah", "fixed:bits=6", 2},
                                           Case{"aqsgd:bits=3", "tah"},
                                           Case{"predict:pairs=0/none", "none"}),
                         [](const auto& of) {
                           std::string name = of.param.forward + std::to_string(of.param.slices);
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace longhaul::worker
