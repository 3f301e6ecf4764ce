#include "transport/p2p/grpc/backend.h"

#include <fmt/core.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <thread>
#include <utility>

#include "base/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/listener.h"
#include "transport/p2p/core/transport_core.h"
#include "transport/p2p/grpc/connection.h"
#include "transport/p2p/grpc/stream.h"

namespace longhaul::transport::grpc {
namespace {

using internal::Connection;

// A frame with its header; the rest is room for a longer header. The core refuses what is a little
// too large with a sentence, gRPC what is more than that.
constexpr int kMessageBytes = static_cast<int>(kMaxFramePayloadBytes) + (4 << 10);
constexpr int kMetadataBytes = 8 << 10;
// What the peer may send ahead of our reading: no less than credits let it, or a long line is never
// full. A stranger is cut long before (proto/rpc/listener.h).
constexpr int kLookaheadBytes = 32 << 20;
constexpr int kHttp2FrameBytes = 128 << 10;  // so that a frame of ours is one of HTTP/2's

template <class Set>
void CommonArguments(const Set& set) {
  set(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // a small message must not become a large one
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  set(GRPC_ARG_HTTP2_BDP_PROBE, 1);
}

// A channel of its own for every connection, so that a full bulk lane delays no control frame.
// Heartbeats are the core's: no keepalive here.
std::shared_ptr<::grpc::Channel> NewConnection(const HostPort& address) {
  ::grpc::ChannelArguments arguments;
  CommonArguments([&](const char* name, int value) { arguments.SetInt(name, value); });
  arguments.SetMaxReceiveMessageSize(kMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // they keep copies of what was sent
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // With its scheme, or a host called "unix" would be a file.
  return ::grpc::CreateCustomChannel("dns:///" + ToString(address), PlainClient(), arguments);
}

class GrpcBackend : public internal::Backend {
 public:
  explicit GrpcBackend(GrpcOptions options) : options_(std::move(options)) {}
  ~GrpcBackend() override {
    if (shutdown_thread_.joinable()) shutdown_thread_.join();
  }

  std::string name() const override { return "grpc"; }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    accept_ = std::move(accept);
    LH_ASSIGN_OR_RETURN(
        listener_, Listener::Create(loop_, options_.bind_address, [this](int fd) {
          ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
          connection.fd = fd;
          acceptor_->HandleNewConnection(&connection);
        }));
    service_ = NewService(loop_, [this](std::unique_ptr<Stream> stream, const std::string& peer) {
      // Shared, because a task can be copied.
      const auto shared = std::make_shared<std::unique_ptr<Stream>>(std::move(stream));
      loop_->Post([this, shared, peer] { Admit(std::move(*shared), PeerText(peer)); });
    });
    ::grpc::ServerBuilder builder;
    CommonArguments([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(absl::ToInt64Milliseconds(kStrangerLimit)));
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        ::grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, PlainServer());
    builder.RegisterCallbackGenericService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC could not start its server");
    address_ = listener_->address();
    return address_;
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    LH_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
    return GrpcConnection::Start(loop_, DialStream(loop_, NewConnection(parsed)), table_,
                                 fmt::format("{} <-> {}", address_, address), {});
  }

  void Shutdown(std::function<void()> done) override {
    shutting_down_ = true;
    listener_->StopListening();
    table_->CloseAll(nullptr);
    // Waits for the streams, which need this loop to end.
    shutdown_thread_ = std::thread([this, done = std::move(done)] {
      server_->Shutdown(std::chrono::system_clock::now());
      loop_->Post([this, done] {
        shutdown_thread_.join();
        server_.reset();
        listener_.reset();
        table_->CloseAll([loop = loop_, done] { loop->Post(done); });
      });
    });
  }

 private:
  void Admit(std::unique_ptr<Stream> stream, const std::string& peer) {
    const auto connection = GrpcConnection::Start(loop_, std::move(stream), table_,
                                                  fmt::format("{} <-> {}", address_, peer),
                                                  {.admitted =
                                                       [this, peer] {
                                                         if (listener_) listener_->Admit(peer);
                                                       },
                                                   .closed =
                                                       [this, peer] {
                                                         if (listener_) listener_->Cut(peer);
                                                       }});
    if (shutting_down_) return connection->Close();
    accept_(connection);
  }

  const GrpcOptions options_;
  std::shared_ptr<EventLoop> loop_;
  Accept accept_;
  std::string address_;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<::grpc::CallbackGenericService> service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<::grpc::Server> server_;
  const std::shared_ptr<ConnectionTable> table_ = std::make_shared<ConnectionTable>();
  bool shutting_down_ = false;
  std::thread shutdown_thread_;
};

}  // namespace

std::unique_ptr<internal::Backend> NewBackend(const GrpcOptions& options) {
  return std::make_unique<GrpcBackend>(options);
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(const GrpcOptions& options) {
  return internal::NewTransport(NewBackend(options));
}

}  // namespace longhaul::transport::grpc
