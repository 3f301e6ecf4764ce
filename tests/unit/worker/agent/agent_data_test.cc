// Two stages train on a data set, and the last one has no folder: its chunks come from the first,
// or, where somebody in the first one's place gives none, from the coordinator. The losses stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "run/data/data_set.h"
#include "tests/unit/worker/agent/agent_harness.h"
#include "tests/unit/worker/epoch/chunk_stranger.h"

namespace longhaul::worker {
namespace {

constexpr uint64_t kSetChunks = 5, kSetChunkBytes = 4096;
constexpr char kSecret[] = "a secret of the run";  // AssignOf's

// A data set of one file, in a folder of its own.
class TinySet {
 public:
  TinySet() {
    for (uint64_t i = 0; i < kSetChunks * kSetChunkBytes / 2; ++i) {
      bytes_ += static_cast<char>(i * i % 251);
      bytes_ += '\0';
    }
    EXPECT_TRUE(WriteFileAtomic(folder() + "/all.bin", bytes_).ok());
    data::Shard shard{.tokens = bytes_.size() / 2,
                      .ids = {.file = "all.bin", .offset = 0, .bytes = bytes_.size(), .chunks = ""},
                      .mask = {}};
    for (uint64_t i = 0; i < kSetChunks; ++i) shard.ids.chunks += Sha256Hex(Chunk(i));
    data::Source source{.folder = folder(), .weight = 1, .set = {}};
    source.set.vocabulary = 256;
    source.set.chunk_bytes = kSetChunkBytes;
    source.set.training.shards = {shard};
    list_ = ToJson(data::Mixture{{source}});
  }
  std::string folder() const { return folder_.path(); }
  std::string Chunk(uint64_t i) const { return bytes_.substr(i * kSetChunkBytes, kSetChunkBytes); }
  uint64_t tokens() const { return bytes_.size() / 2; }

  // As if the coordinator had sent them.
  void GiveList(const Worker& worker) const { Give(worker, list_); }
  void GiveChunks(const Worker& worker) const {
    for (uint64_t i = 0; i < kSetChunks; ++i) Give(worker, Chunk(i));
  }
  // How many of these chunks the worker has not taken.
  uint64_t ChunksLeft(const Worker& worker) const {
    uint64_t left = 0;
    for (uint64_t i = 0; i < kSetChunks; ++i) {
      left += std::filesystem::exists(worker.blobs_folder() + "/" + Sha256Hex(Chunk(i))) ? 1 : 0;
    }
    return left;
  }
  void Hide() const { std::filesystem::remove(folder() + "/all.bin"); }

  v1::WorkerCommand AssignOf(uint32_t stage, const std::vector<std::string>& addresses) const {
    std::string yaml = kTinyRun;
    const std::string text = "{ text: [text.txt] }";
    yaml.replace(
        yaml.find(text), text.size(),
        fmt::format("{{ sets: [{}], list: {}, vocabulary: 256 }}", folder(), Sha256Hex(list_)));
    const auto spec = ParseRunSpec(yaml, "tiny.yaml", {"train.steps=40"});
    EXPECT_TRUE(spec.ok()) << spec.status();
    Assignment assignment = TinyAssignment(*spec, 1, Sha256Hex(list_), addresses);
    assignment.data.tokens = tokens();
    for (Edge& edge : assignment.edges) edge.to_dials = false;  // the last stage is dialled
    return worker::AssignOf(assignment, {.replica = 0, .stage = stage});
  }

 private:
  static void Give(const Worker& worker, const std::string& bytes) {
    EXPECT_TRUE(WriteFileAtomic(worker.blobs_folder() + "/" + Sha256Hex(bytes), bytes).ok());
  }

  ::longhaul::testing::TempDir folder_;
  std::string bytes_, list_;
};

class AgentDataTest : public ::testing::Test {
 protected:
  AgentDataTest() {
    for (const Worker* worker : {&first_, &last_}) set_.GiveList(*worker);
  }
  // `before_first`: when the last stage is there, and the first one is not.
  std::vector<double> Train(const std::function<void()>& before_first = nullptr) {
    const std::vector<std::string> addresses = {first_.address(), last_.address()};
    last_->Handle(set_.AssignOf(1, addresses));
    if (before_first) before_first();
    first_->Handle(set_.AssignOf(0, addresses));
    for (Worker* worker : {&first_, &last_}) {
      worker->HearUntil(v1::WorkerMessage::kStageReady);
    }
    for (Worker* worker : {&first_, &last_}) (*worker)->Handle(StartOf(1));
    std::vector<double> losses;
    while (losses.size() < 40) {
      const v1::WorkerMessage step = last_.HearUntil(v1::WorkerMessage::kStep);
      if (!step.has_step()) break;
      losses.push_back(step.step().loss());
    }
    for (Worker* worker : {&first_, &last_}) {
      (*worker)->Handle(AbortOf(1));
      worker->ExpectFree();
    }
    return losses;
  }

  TinySet set_;
  Worker first_, last_;
};

// Where everybody has the folder.
std::vector<double> LossesOf(const TinySet& set) {
  Worker alone;
  set.GiveList(alone);
  alone->Handle(set.AssignOf(0, {alone.address()}));
  alone.HearUntil(v1::WorkerMessage::kStageReady);
  alone->Handle(StartOf(1));
  std::vector<double> losses;
  while (losses.size() < 40) {
    losses.push_back(alone.HearUntil(v1::WorkerMessage::kStep).step().loss());
  }
  return losses;
}

TEST_F(AgentDataTest, TheCoordinatorIsAskedOnceForBoth) {
  const std::vector<double> wanted = LossesOf(set_);
  set_.Hide();
  set_.GiveChunks(first_);
  set_.GiveChunks(last_);
  EXPECT_EQ(Train(), wanted);
  EXPECT_EQ(set_.ChunksLeft(first_), 0u);
  EXPECT_EQ(set_.ChunksLeft(last_), kSetChunks) << "all came from the first stage";
}

struct Answer {
  const char* name;
  std::function<void(ChunkStranger&, const wire::ChunkAsk&)> give;
};

class InItsPlace : public AgentDataTest, public ::testing::WithParamInterface<Answer> {};

TEST_P(InItsPlace, SomebodyGivesNothingAndTheCoordinatorAll) {
  const std::vector<double> wanted = LossesOf(set_);
  set_.Hide();
  set_.GiveChunks(first_);
  set_.GiveChunks(last_);
  std::shared_ptr<ChunkStranger> stranger;
  std::atomic<int> asks = 0;
  stranger = std::make_shared<ChunkStranger>([&](const wire::ChunkAsk& ask) {
    ++asks;
    GetParam().give(*stranger, ask);
  });
  const std::vector<double> losses = Train([&] {
    stranger->Dial(last_.address(), {RunId("chunks:tiny"), StampOf(TinyHash(1)), EdgeId(2)},
                   kSecret);
    stranger->AwaitOpen();
  });
  EXPECT_EQ(losses, wanted);
  EXPECT_GT(asks, 0);
  EXPECT_EQ(set_.ChunksLeft(first_), 0u);
  EXPECT_EQ(set_.ChunksLeft(last_), 0u);
  stranger->End();
}

INSTANTIATE_TEST_SUITE_P(
    Answers, InItsPlace,
    ::testing::Values(Answer{"rubbish",
                             [](ChunkStranger& stranger, const wire::ChunkAsk& ask) {
                               stranger.SayPiece(ask.request, std::string(kSetChunkBytes, 'x'));
                             }},
                      Answer{"a_part_and_the_end",
                             [](ChunkStranger& stranger, const wire::ChunkAsk& ask) {
                               stranger.SayPiece(ask.request, "x");
                               stranger.Close();
                             }},
                      Answer{"too_much",
                             [](ChunkStranger& stranger, const wire::ChunkAsk& ask) {
                               stranger.SayPiece(ask.request, std::string(kSetChunkBytes + 1, 'x'));
                             }},
                      Answer{"not_here",
                             [](ChunkStranger& stranger, const wire::ChunkAsk& ask) {
                               stranger.Say(transport::Lane::kControl,
                                            wire::EncodeChunkWord(wire::ChunkNotHere{ask.request}));
                             }}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace longhaul::worker
