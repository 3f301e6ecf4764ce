// A gRPC stream as a Connection: a message is the link header and the payload behind it in one
// piece.
//
// gRPC may keep a message's memory for as long as a dead peer's stream lingers, but a closed
// connection runs its `done`s at once. So messages are copied into gRPC's own memory, once on each
// side.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"
#include "transport/p2p/grpc/stream.h"

namespace longhaul::transport::grpc {

class GrpcConnection;
using ConnectionTable = internal::ConnectionSet<GrpcConnection>;

class GrpcConnection : public internal::Connection,
                       public StreamEvents,
                       public std::enable_shared_from_this<GrpcConnection> {
 public:
  // How the accepting backend learns about the underlying HTTP/2 connection; empty functions on the
  // dialling side.
  struct ConnectionEvents {
    std::function<void()> admitted;  // its peer has proved itself
    std::function<void()> closed;
  };

  // The connection adds itself to the table and removes itself.
  static std::shared_ptr<GrpcConnection> Start(std::shared_ptr<EventLoop> loop,
                                               std::unique_ptr<Stream> stream,
                                               std::shared_ptr<ConnectionTable> table,
                                               std::string description,
                                               ConnectionEvents connection_events);

  // The first call sets the events of the handshake, during which the peer is a stranger. A second
  // call means that the peer has proved itself (ConnectionEvents::admitted).
  void SetEvents(std::shared_ptr<internal::ConnectionEvents> events) override;
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override;
  void Close() override { CloseWith(absl::CancelledError("closed on this side")); }
  std::string Describe() const override { return description_; }

  void OnRead(bool ok, const ::grpc::Slice& message) override;
  void OnWritten(bool ok) override;
  void OnEnded(const Status& status) override;

 private:
  struct Waiting {
    std::span<const std::byte> header;
    FrameView payload;
    SendDone done;
  };

  GrpcConnection(std::shared_ptr<EventLoop> loop, std::unique_ptr<Stream> stream,
                 std::shared_ptr<ConnectionTable> table, std::string description,
                 ConnectionEvents connection_events);
  void WriteNext();
  // OK: the reason is the status with which the stream ends.
  void CloseWith(const Status& reason);
  void EndIfIdle();

  const std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Stream> stream_;
  const std::shared_ptr<ConnectionTable> table_;
  const std::string description_;
  const ConnectionEvents connection_events_;
  std::shared_ptr<internal::ConnectionEvents> events_;
  bool events_set_ = false;
  std::deque<Waiting> waiting_;
  SendDone writing_;  // empty: nothing is being written
  bool reading_ = false;
  bool closing_ = false;
  bool ended_ = false;  // Stream::End was called
  Status reason_;
};

}  // namespace longhaul::transport::grpc
