// A worker's agent without a coordinator: a test gives commands and hears what the agent says.
// Links are loopback ones.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/mailbox.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/tiny_run.h"
#include "transport/p2p/loopback/factory.h"
#include "worker/agent/agent.h"
#include "worker/shards/shard_transfers.h"

namespace longhaul::worker {

inline v1::WorkerCommand CommandTo(const std::string& run, uint64_t epoch) {
  v1::WorkerCommand command;
  command.set_run_id(run);
  command.set_epoch(epoch);
  command.set_stamp(StampOf(TinyHash(epoch)).value());
  return command;
}
// To the tiny run, with the body that a setter of the message gives it.
template <class Body>
v1::WorkerCommand CommandOf(uint64_t epoch, Body* (v1::WorkerCommand::*mutable_body)()) {
  v1::WorkerCommand command = CommandTo("tiny", epoch);
  (command.*mutable_body)();
  return command;
}
inline v1::WorkerCommand StartOf(uint64_t epoch) {
  return CommandOf(epoch, &v1::WorkerCommand::mutable_start);
}
inline v1::WorkerCommand StopOf(uint64_t epoch) {
  return CommandOf(epoch, &v1::WorkerCommand::mutable_stop);
}
inline v1::WorkerCommand AbortOf(uint64_t epoch) {
  return CommandOf(epoch, &v1::WorkerCommand::mutable_abort);
}

// One worker's worth of what an agent needs.
class Worker {
 public:
  explicit Worker(absl::Duration resident_limit = absl::Minutes(10), size_t devices = 1) {
    tokens_ = WriteTinyTokens(folder_.path() + "/blobs");
    auto shards = ShardStore::OpenLocal(folder_.path() + "/checkpoints");
    auto transport = transport::loopback::CreateTransport({});
    EXPECT_TRUE(shards.ok() && transport.ok());
    shards_ = *std::move(shards);
    transport_ = *std::move(transport);
    transfers_ = std::make_unique<ShardTransfers>(
        transport::TransportsByName{{"ucx", transport_.get()}}, shards_.get(), &traffic_,
        [this](v1::WorkerMessage message) { said_.Push(std::move(message)); });
    agent_ = std::make_unique<Agent>(
        Resources{.transports = {{"ucx", transport_.get()}},
                  .devices = std::vector<WorkerDevice>(devices),
                  .codec_thread = &codec_thread_,
                  .shards = shards_.get(),
                  .blobs = &blobs_,
                  .pieces = &blobs_,
                  .traffic = &traffic_,
                  .roots = &roots_,
                  .transfers = transfers_.get(),
                  .send = [this](v1::WorkerMessage message) { said_.Push(std::move(message)); },
                  .restart = [this](const RestartCause& cause) { restarts_.Push(cause); },
                  .resident_limit = resident_limit,
                  .make_stage =
                      [this](const StageOptions& options) {
                        ++models_made_;
                        if (!stage_refusal_.ok())
                          return StatusOr<std::unique_ptr<Stage>>(stage_refusal_);
                        // Whatever ranks it was to have.
                        StageOptions of_one = options;
                        ranks_ = std::exchange(of_one.ranks, {}).size();
                        of_one.group = {};
                        return Stage::Create(of_one);
                      }});
  }
  // As the daemon ends.
  ~Worker() {
    agent_->Shutdown();
    transfers_.reset();
    transport_.reset();
  }

  Agent& operator*() { return *agent_; }
  Agent* operator->() { return agent_.get(); }
  const std::string& address() const { return transport_->address(); }
  const std::string& tokens() const { return tokens_; }
  // Where it finds what the coordinator would send it.
  std::string blobs_folder() const { return folder_.path() + "/blobs"; }
  // From the next model on. Before the command that makes it.
  void RefuseModels(const Status& why) { stage_refusal_ = why; }
  // Why it would have begun its process anew.
  std::optional<RestartCause> Restarts() { return restarts_.Take(); }
  bool silent() const { return said_.empty(); }
  int models_made() const { return models_made_; }
  // That the last model was asked to have; 0: it was for one device.
  size_t ranks() const { return ranks_; }
  // The model that the agent says it keeps; without a run: none.
  v1::Resident resident() const {
    v1::Heartbeat heartbeat;
    agent_->FillHeartbeat(&heartbeat);
    return heartbeat.resident();
  }
  // A checkpoint's files are nowhere any more.
  void LoseShards(uint64_t step) { EXPECT_TRUE(shards_->Drop(RunId("tiny"), Step(step)).ok()); }

  v1::WorkerMessage Hear() {
    auto message = said_.Take();
    EXPECT_TRUE(message.has_value()) << "the worker says nothing";
    return message.value_or(v1::WorkerMessage());
  }
  // Skips what comes before.
  v1::WorkerMessage HearUntil(v1::WorkerMessage::BodyCase body) {
    while (true) {
      v1::WorkerMessage message = Hear();
      if (message.body_case() == body || message.body_case() == v1::WorkerMessage::BODY_NOT_SET) {
        EXPECT_EQ(message.body_case(), body);
        return message;
      }
      EXPECT_FALSE(message.has_error()) << message.error().message();
      if (message.has_error()) return message;
    }
  }
  // There is no event that says so.
  void WaitUntilAtHand() {
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (!agent_->CurrentRun() && !deadline.Expired()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_TRUE(agent_->CurrentRun());
  }
  // The agent's thread does one thing after the other, so when this is answered, what was aborted
  // before has ended.
  void ExpectFree() {
    v1::WorkerCommand command = CommandTo("measured", 1);
    command.mutable_measure()->set_run_yaml("nonsense");
    agent_->Handle(command);
    while (true) {
      const v1::WorkerMessage message = Hear();
      if (message.run_id() == "measured" || message.run_id().empty()) {
        EXPECT_TRUE(message.has_error());
        break;
      }
      EXPECT_FALSE(message.has_error()) << message.error().message();
    }
    EXPECT_FALSE(agent_->CurrentRun());
  }

 private:
  ::longhaul::testing::TempDir folder_;
  std::string tokens_;
  std::atomic<int> models_made_{0};
  std::atomic<size_t> ranks_{0};
  Status stage_refusal_;
  ::longhaul::testing::Mailbox<RestartCause> restarts_;
  ::longhaul::testing::Mailbox<v1::WorkerMessage> said_;
  CodecThread codec_thread_;  // outlives the transport
  std::unique_ptr<ShardStore> shards_;
  std::unique_ptr<transport::Transport> transport_;
  TrafficWatch traffic_;
  std::unique_ptr<ShardTransfers> transfers_;
  // Nobody is there: what is asked for lies in the folder already.
  RootFolders roots_ = RootFolders::Open({"/"}).value();
  BlobFetcher blobs_{Access::Plain("127.0.0.1:1", ""), folder_.path() + "/blobs"};
  std::unique_ptr<Agent> agent_;
};

class AgentTest : public ::testing::Test {
 protected:
  // A run with one stage, so no links.
  v1::WorkerCommand Alone(uint64_t epoch, const std::vector<std::string>& overrides = {}) {
    return AssignOf(TinySpec(overrides), epoch, 0, worker_.tokens(), {worker_.address()});
  }
  // The first of two stages; the other one never comes.
  v1::WorkerCommand Waiting(uint64_t epoch) {
    return AssignOf(TinySpec(), epoch, 0, worker_.tokens(), {worker_.address(), "nobody"});
  }
  void ExpectReady(uint64_t epoch) {
    const v1::WorkerMessage ready = worker_.Hear();
    EXPECT_TRUE(ready.has_stage_ready()) << ready.ShortDebugString();
    EXPECT_EQ(ready.run_id(), "tiny");
    EXPECT_EQ(ready.epoch(), epoch);
    EXPECT_GT(ready.stage_ready().parameters(), 0u);
  }

  Worker worker_;
};

// More steps than any test waits for.
inline const std::vector<std::string> kEndless = {"train.steps=1000000"};

}  // namespace longhaul::worker
