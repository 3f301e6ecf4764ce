// A worker without a model: says hello and answers every command as a real one would, over a real
// connection. And a coordinator in this process to talk to.
#pragma once

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "coordinator/rpc/server.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {

inline constexpr char kToken[] = "a token of thirty-two characters";
// No call of these tests takes as long.
inline constexpr std::chrono::seconds kPatience{30};

// A context that carries the token and ends.
struct CallContext {
  explicit CallContext(std::string_view token = kToken) {
    AddToken(&grpc, token);
    grpc.set_deadline(std::chrono::system_clock::now() + kPatience);
  }
  grpc::ClientContext grpc;
};

class Session {
 public:
  explicit Session(const std::string& address, std::string_view token = kToken)
      : Session(MakeChannel(address), token) {}
  explicit Session(const std::shared_ptr<grpc::Channel>& channel, std::string_view token = kToken)
      : stub_(v1::WorkerService::NewStub(channel)), context_(token) {
    stream_ = stub_->Session(&context_.grpc);
  }
  ~Session() { context_.grpc.TryCancel(); }

  bool Say(const v1::WorkerMessage& message) { return stream_->Write(message); }
  bool SayHello(const v1::Hello& hello) {
    v1::WorkerMessage message;
    *message.mutable_hello() = hello;
    return Say(message);
  }
  // False: the stream has ended. Leaves out the leader's beats, which come at any time, even before
  // the welcome.
  bool Hear(v1::WorkerCommand* command) {
    do {
      if (!stream_->Read(command)) return false;
    } while (command->has_leader_beat());
    return true;
  }
  void CloseMySide() { stream_->WritesDone(); }
  void Cancel() { context_.grpc.TryCancel(); }
  // Once, when Hear was false.
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  CallContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerCommand>> stream_;
};

// Serves a stage on a thread of its own until it is destroyed or the stream ends.
class FakeWorker {
 public:
  // The shards that the worker reports. Without them it reports ShardOf's, and sends no copy.
  struct Shards {
    std::string sha256;
    uint64_t bytes = 0;
    // Runs before it says that a copy is at the coordinator, if that was asked for.
    std::function<void()> send = [] {};
  };
  FakeWorker(const std::string& address, const std::string& name)
      : session_(address), thread_([this, name] { Serve(name); }) {}
  FakeWorker(const std::shared_ptr<grpc::Channel>& channel, const std::string& name, Shards shards)
      : shards_(std::move(shards)), session_(channel), thread_([this, name] { Serve(name); }) {}
  ~FakeWorker() {
    session_.Cancel();
    thread_.join();
  }

 private:
  void Serve(const std::string& name) {
    session_.SayHello(HelloOf(name));
    v1::WorkerCommand command;
    while (session_.Hear(&command)) {
      v1::WorkerMessage answer;
      answer.set_run_id(command.run_id());
      answer.set_epoch(command.epoch());
      answer.set_stamp(command.stamp());
      if (command.has_measure()) {
        *answer.mutable_layer_times() = SmallTimes();
        session_.Say(answer);
      } else if (command.has_try_reach() && command.try_reach().dial()) {
        answer.mutable_reach_tried()->set_check(command.try_reach().check());
        for (int i = 0; i < command.try_reach().addresses_size(); ++i) {
          answer.mutable_reach_tried()->add_problems();
        }
        session_.Say(answer);
      } else if (command.has_probe_link()) {
        answer.mutable_link_probed()->set_probe(command.probe_link().probe());
        answer.mutable_link_probed()->set_goodput_bits_per_second(1e9);
        session_.Say(answer);
      } else if (command.has_check_shards()) {
        answer.mutable_shards_checked()->set_check(command.check_shards().check());
        for (const v1::CheckpointFile& file : command.check_shards().files()) {
          v1::ShardState& shard = *answer.mutable_shards_checked()->add_shards();
          shard.set_name(file.name());
          shard.set_copied(shards_ && command.check_shards().copy());
          if (shard.copied()) shards_->send();
        }
        session_.Say(answer);
      } else if (command.has_assign()) {
        assign_ = command.assign();
        answer.mutable_stage_ready()->set_start_step(assign_.assignment().start_step());
        session_.Say(answer);
      } else if (command.has_start()) {
        answer.mutable_stage_started();
        session_.Say(answer);
        Train(answer);
      }
    }
    session_.Finish();
  }

  void Train(v1::WorkerMessage message) {
    const StatusOr<RunSpec> spec = ParseRunSpec(assign_.assignment().run_yaml(), "plan", {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const uint32_t stage = assign_.cell().stage();
    const Assignment assignment = longhaul::FromProto(assign_.assignment());
    const Roles roles = assignment.Find(longhaul::FromProto(assign_.cell()))->roles;
    for (uint64_t step = 1; step <= spec->train.steps; ++step) {
      v1::StepReport& report = *message.mutable_step();
      report.set_step(step);
      report.set_seconds(0.5);
      report.set_has_norm(roles.embedding);
      report.set_gradient_norm(2.0);
      report.set_has_loss(roles.head);
      report.set_loss(5.0 - 0.1 * static_cast<double>(step));
      session_.Say(message);
    }
    v1::LogLine& line = *message.mutable_log();
    line.set_level("info");
    line.set_text("the last step is done");
    session_.Say(message);
    *message.mutable_shard() = ShardOf(spec->train.steps, stage);
    if (shards_) {
      message.mutable_shard()->mutable_files(0)->set_sha256(shards_->sha256);
      message.mutable_shard()->mutable_files(0)->set_bytes(shards_->bytes);
    }
    session_.Say(message);
    message.mutable_finished()->set_step(spec->train.steps);
    session_.Say(message);
  }

  const std::optional<Shards> shards_;
  Session session_;
  v1::Assign assign_;
  std::thread thread_;
};

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() {
    options_.listen = "127.0.0.1:0";
    options_.state_dir = folder_.path() + "/state";
    options_.insecure = true;
    options_.token = kToken;
    options_.state.version = "1.2.3";
  }
  void Start() {
    StatusOr<std::unique_ptr<CoordinatorServer>> server = CoordinatorServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    control_ = v1::ControlService::NewStub(MakeChannel(server_->address()));
    workers_ = v1::WorkerService::NewStub(MakeChannel(server_->address()));
    // As the CLI does: uploads are too much for a connection that has not shown the token.
    CallContext context;
    v1::InfoReply reply;
    ASSERT_TRUE(control_->Info(&context.grpc, {}, &reply).ok());
  }

  grpc::Status Upload(const std::string& sha256, uint64_t total, const std::string& bytes,
                      size_t chunk_bytes = 1 << 20) {
    CallContext context;
    v1::UploadReply reply;
    const auto writer = control_->UploadBlob(&context.grpc, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(sha256);
    chunk.set_total_bytes(total);
    size_t offset = 0;
    do {
      chunk.set_data(bytes.substr(offset, chunk_bytes));
      offset += chunk.data().size();
      if (!writer->Write(chunk)) break;
      chunk.Clear();
    } while (offset < bytes.size());
    writer->WritesDone();
    return writer->Finish();
  }

  // A run over some uploaded text.
  v1::SubmitRequest SubmitOfText(const RunSpec& spec) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) text += static_cast<char>('a' + i * i % 26);
    const std::string sha256 = Sha256Hex(text);
    EXPECT_TRUE(Upload(sha256, text.size(), text).ok());
    v1::SubmitRequest request;
    request.set_run_yaml(ToYaml(spec));
    request.set_file_name("run.yaml");
    v1::DataFile& file = *request.add_data_files();
    file.set_name("corpus.txt");
    file.set_sha256(sha256);
    file.set_bytes(text.size());
    return request;
  }
  std::string Submit(const RunSpec& spec) {
    CallContext context;
    v1::SubmitReply reply;
    const grpc::Status status = control_->Submit(&context.grpc, SubmitOfText(spec), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.run_id();
  }

  // Every message of a stream to its end.
  template <class Message, class Reader>
  std::vector<Message> ReadAll(const Reader& reader, grpc::Status* status = nullptr) {
    std::vector<Message> messages;
    Message message;
    while (reader->Read(&message)) messages.push_back(message);
    const grpc::Status end = reader->Finish();
    if (status != nullptr) {
      *status = end;
    } else {
      EXPECT_TRUE(end.ok()) << end.error_message();
    }
    return messages;
  }

  testing::TempDir folder_;
  ServerOptions options_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::ControlService::Stub> control_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
};

}  // namespace longhaul::coordinator
