// Gives both ends of a gRPC stream of raw messages, the client's and the server's, one interface.
// gRPC's callbacks come on its own threads; only this file turns them into tasks of the loop.
//
// Threads: call the methods on the loop. Events run later on the loop, never inside a call.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/status.h"

namespace longhaul::transport::grpc {

class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // Answers Read. If `ok`, `message` is a whole message, which may be kept; else no more messages
  // follow.
  virtual void OnRead(bool ok, const ::grpc::Slice& message) = 0;
  // Answers Write. If `ok`, the operating system has the bytes; else the stream is broken.
  virtual void OnWritten(bool ok) = 0;
  // The last event, after End. `status` says why the stream ended, as far as this side knows. Do
  // not destroy the Stream before this event.
  virtual void OnEnded(const Status& status) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Sets the receiver of the events, and lets them begin. Keeps `events` until OnEnded.
  virtual void Start(std::shared_ptr<StreamEvents> events) = 0;
  // Read starts a read, Write starts a write. At most one of each may be in progress.
  virtual void Read() = 0;
  virtual void Write(::grpc::ByteBuffer message) = 0;
  // Breaks the stream: reads and writes in progress fail soon.
  virtual void Cancel() = 0;
  // Call it once, when no read or write is in progress. No other call may follow.
  virtual void End() = 0;
};

// Dials the peer of `connection` and opens a stream on it. `connection` must be a new channel that
// nothing else uses. Returns at once; the events tell whether the peer is there.
std::unique_ptr<Stream> DialStream(const std::shared_ptr<EventLoop>& loop,
                                   std::shared_ptr<::grpc::Channel> connection);

// Makes the service that accepts streams; it must outlive the gRPC server with which it is
// registered. `on_stream` gets each stream that a peer opens, and runs on a gRPC thread. `peer` is
// the peer's address as gRPC writes it ("ipv4:127.0.0.1:4711").
using OnStream = std::function<void(std::unique_ptr<Stream>, const std::string& peer)>;
std::unique_ptr<::grpc::CallbackGenericService> NewService(const std::shared_ptr<EventLoop>& loop,
                                                           OnStream on_stream);

}  // namespace longhaul::transport::grpc
