// A coordinator without a mind, over a real connection: the test hears what a worker says and
// answers as it likes.
#pragma once

#include <fmt/core.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "tests/support/mailbox.h"

namespace longhaul::worker {

class FakeCoordinator : public v1::WorkerService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerMessage>;

  // One stream of a worker; everything from the test's thread. Open until End.
  class Connection {
   public:
    Connection(grpc::ServerContext* context, Stream* stream) : stream_(stream) {
      const auto& metadata = context->client_metadata();
      const auto it = metadata.find("authorization");
      if (it != metadata.end()) authorization_.assign(it->second.data(), it->second.size());
    }
    const std::string& authorization() const { return authorization_; }

    // False: the worker has ended the stream.
    bool Hear(v1::WorkerMessage* message) { return !ended_ && stream_->Read(message); }
    // The next message that is no heartbeat; an empty one at the stream's end.
    v1::WorkerMessage HearReport() {
      v1::WorkerMessage message;
      while (Hear(&message)) {
        if (!message.has_heartbeat()) return message;
      }
      return {};
    }
    bool Say(const v1::WorkerCommand& command) { return stream_->Write(command); }
    bool Welcome(double heartbeat_seconds = 1, uint64_t term = 0) {
      v1::WorkerCommand command;
      command.set_term(term);
      command.mutable_welcome()->set_protocol(2);
      command.mutable_welcome()->set_heartbeat_seconds(heartbeat_seconds);
      return Say(command);
    }
    bool Reject(const std::string& reason, bool fatal, uint64_t term = 0) {
      v1::WorkerCommand command;
      command.set_term(term);
      command.mutable_reject()->set_reason(reason);
      command.mutable_reject()->set_fatal(fatal);
      return Say(command);
    }
    void End(grpc::Status status = grpc::Status::OK) {
      const std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      status_ = std::move(status);
      changed_.notify_all();
    }

   private:
    friend class FakeCoordinator;
    grpc::Status WaitForEnd() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_; });
      return status_;
    }

    Stream* const stream_;
    std::string authorization_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    grpc::Status status_;
  };

  ~FakeCoordinator() override { Stop(); }

  // On a free port, or on the one it had before Stop.
  void Start() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    builder.AddListeningPort(fmt::format("127.0.0.1:{}", port_), PlainServer(), &port_);
    builder.RegisterService(this);
    stopping_ = false;
    server_ = builder.BuildAndStart();
  }
  // As if it had been killed: every stream breaks.
  void Stop() {
    if (!server_) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (const auto& connection : connections_) {
        connection->End({grpc::StatusCode::UNAVAILABLE, "stopped"});
      }
      connections_.clear();
    }
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    while (!arrivals_.empty()) (void)arrivals_.Take();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  // Waits for the next worker that dials.
  std::shared_ptr<Connection> Accept() { return arrivals_.Take().value_or(nullptr); }
  bool nobody_dialled() const { return arrivals_.empty(); }

  // Shards that came, by their hash. Unless `refuse_shards` is not OK (set it before Start).
  std::map<std::string, std::string> shards() {
    const std::lock_guard lock(mutex_);
    return shards_;
  }
  grpc::Status refuse_shards;
  int refused_shards() const { return refused_shards_; }
  std::map<std::string, std::string> blobs;  // by hash; set it before Start

 private:
  grpc::Status FetchBlob(grpc::ServerContext*, const v1::FetchBlobRequest* request,
                         grpc::ServerWriter<v1::BlobChunk>* writer) override {
    const auto found = blobs.find(request->sha256());
    if (found == blobs.end()) return {grpc::StatusCode::NOT_FOUND, "there is no such blob"};
    v1::BlobChunk chunk;
    chunk.set_total_bytes(found->second.size());
    chunk.set_data(found->second.substr(request->offset()));
    writer->Write(chunk);
    return grpc::Status::OK;
  }
  grpc::Status StoreShard(grpc::ServerContext*, grpc::ServerReader<v1::UploadChunk>* reader,
                          v1::UploadReply*) override {
    if (!refuse_shards.ok()) {
      ++refused_shards_;
      return refuse_shards;
    }
    reader->SendInitialMetadata();
    v1::UploadChunk chunk;
    std::string sha256, bytes;
    while (reader->Read(&chunk)) {
      if (!chunk.sha256().empty()) sha256 = chunk.sha256();
      bytes += chunk.data();
    }
    const std::lock_guard lock(mutex_);
    shards_[sha256] = bytes;
    return grpc::Status::OK;
  }
  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
    const auto connection = std::make_shared<Connection>(context, stream);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "stopped"};
      connections_.push_back(connection);
      arrivals_.Push(connection);
    }
    return connection->WaitForEnd();
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  ::longhaul::testing::Mailbox<std::shared_ptr<Connection>> arrivals_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::map<std::string, std::string> shards_;
  std::atomic<int> refused_shards_{0};
};

}  // namespace longhaul::worker
