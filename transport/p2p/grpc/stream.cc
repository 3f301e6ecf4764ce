#include "transport/p2p/grpc/stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "proto/rpc/status.h"

namespace longhaul::transport::grpc {
namespace {

using ::grpc::ByteBuffer;

constexpr char kMethod[] = "/longhaul.v1.DataLink/Stream";

// What both ends do alike with what gRPC tells them.
class Poster {
 public:
  explicit Poster(std::shared_ptr<EventLoop> loop) : loop_(std::move(loop)) {}
  void Start(std::shared_ptr<StreamEvents> events) { events_ = std::move(events); }

  void OnRead(bool ok, ByteBuffer* buffer) {
    ::grpc::Slice message;
    // One piece where it came as one, else copied together, here rather than on the loop.
    ok = ok && (buffer->TrySingleSlice(&message).ok() || buffer->DumpToSingleSlice(&message).ok());
    buffer->Clear();
    loop_->Post([events = events_, ok, message] { events->OnRead(ok, message); });
  }
  void OnWritten(bool ok) {
    loop_->Post([events = events_, ok] { events->OnWritten(ok); });
  }
  // The stream may be gone when this returns.
  void OnEnded(const Status& status) {
    const std::shared_ptr<EventLoop> loop = loop_;
    loop->Post([events = std::move(events_), status] { events->OnEnded(status); });
  }

 private:
  const std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<StreamEvents> events_;
};

class DialledStream : public Stream, public ::grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  DialledStream(std::shared_ptr<EventLoop> loop, std::shared_ptr<::grpc::Channel> connection)
      : poster_(std::move(loop)), connection_(std::move(connection)), stub_(connection_) {}

  void Start(std::shared_ptr<StreamEvents> events) override {
    poster_.Start(std::move(events));
    stub_.PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    AddHold();  // the loop's: it reads and writes from outside gRPC's callbacks
    StartCall();
  }
  void Read() override { StartRead(&incoming_); }
  void Write(ByteBuffer message) override {
    outgoing_.Swap(&message);
    StartWrite(&outgoing_);
  }
  void Cancel() override { context_.TryCancel(); }
  void End() override { RemoveHold(); }

  void OnReadDone(bool ok) override { poster_.OnRead(ok, &incoming_); }
  void OnWriteDone(bool ok) override {
    outgoing_.Clear();
    poster_.OnWritten(ok);
  }
  void OnDone(const ::grpc::Status& status) override { poster_.OnEnded(FromGrpc(status)); }

 private:
  Poster poster_;
  const std::shared_ptr<::grpc::Channel> connection_;
  ::grpc::GenericStub stub_;
  ::grpc::ClientContext context_;
  ByteBuffer incoming_, outgoing_;
};

class AcceptedStream : public Stream, public ::grpc::ServerGenericBidiReactor {
 public:
  AcceptedStream(std::shared_ptr<EventLoop> loop, ::grpc::GenericCallbackServerContext* context)
      : poster_(std::move(loop)), context_(context) {}

  void Start(std::shared_ptr<StreamEvents> events) override { poster_.Start(std::move(events)); }
  void Read() override { StartRead(&incoming_); }
  void Write(ByteBuffer message) override {
    outgoing_.Swap(&message);
    StartWrite(&outgoing_);
  }
  void Cancel() override { context_->TryCancel(); }
  // gRPC calls back until it has finished the stream, so that is the hold on this side.
  void End() override { Finish(::grpc::Status::CANCELLED); }

  void OnReadDone(bool ok) override { poster_.OnRead(ok, &incoming_); }
  void OnWriteDone(bool ok) override {
    outgoing_.Clear();
    poster_.OnWritten(ok);
  }
  void OnDone() override {
    poster_.OnEnded(absl::UnavailableError("the peer ended the connection"));
  }

 private:
  Poster poster_;
  ::grpc::GenericCallbackServerContext* const context_;
  ByteBuffer incoming_, outgoing_;
};

class Unimplemented : public ::grpc::ServerGenericBidiReactor {
 public:
  Unimplemented() {
    Finish(::grpc::Status(::grpc::StatusCode::UNIMPLEMENTED, "this port carries data links"));
  }
  void OnDone() override { delete this; }
};

class Service : public ::grpc::CallbackGenericService {
 public:
  Service(std::shared_ptr<EventLoop> loop, OnStream on_stream)
      : loop_(std::move(loop)), on_stream_(std::move(on_stream)) {}

  ::grpc::ServerGenericBidiReactor* CreateReactor(
      ::grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kMethod) return new Unimplemented();
    auto stream = std::make_unique<AcceptedStream>(loop_, context);
    AcceptedStream* const reactor = stream.get();
    on_stream_(std::move(stream), context->peer());
    return reactor;
  }

 private:
  const std::shared_ptr<EventLoop> loop_;
  const OnStream on_stream_;
};

}  // namespace

std::unique_ptr<Stream> DialStream(const std::shared_ptr<EventLoop>& loop,
                                   std::shared_ptr<::grpc::Channel> connection) {
  return std::make_unique<DialledStream>(loop, std::move(connection));
}

std::unique_ptr<::grpc::CallbackGenericService> NewService(const std::shared_ptr<EventLoop>& loop,
                                                           OnStream on_stream) {
  return std::make_unique<Service>(loop, std::move(on_stream));
}

}  // namespace longhaul::transport::grpc
