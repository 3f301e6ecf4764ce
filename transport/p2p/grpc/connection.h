// A gRPC stream as a Connection. A message of the stream is the link header followed by the
// payload.
//
// Each message is copied once on each side, into gRPC's own memory. Otherwise a connection that
// closes could not run the `done` of its sends soon: gRPC may keep a message as long as a dead
// peer's stream lingers.
//
// Threads: all on the loop.
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
  // The accepting backend's callbacks about the underlying HTTP/2 connection. Both are empty on the
  // dialling side.
  struct ConnectionEvents {
    std::function<void()> admitted;  // the peer has proved that it knows the link's secret
    std::function<void()> closed;    // this side closes the connection, or it broke
  };

  // Starts `stream`. The connection adds itself to `table`, and removes itself at its end.
  // `description`: the result of Describe.
  static std::shared_ptr<GrpcConnection> Start(std::shared_ptr<EventLoop> loop,
                                               std::unique_ptr<Stream> stream,
                                               std::shared_ptr<ConnectionTable> table,
                                               std::string description,
                                               ConnectionEvents connection_events);

  // The first call sets the receiver of the handshake's events. The second call means that the
  // handshake succeeded, so it also runs ConnectionEvents::admitted.
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
  // Closes the stream. If `reason` is OK, OnClosed gets the status with which the stream ends.
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
