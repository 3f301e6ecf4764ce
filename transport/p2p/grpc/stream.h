// Makes gRPC's two ends of a bidirectional stream of raw messages look alike. gRPC's callbacks come
// on its own threads; only this file turns them into tasks of the loop.
//
// Threads: the methods on the loop; events are posted to it, never inside a call.
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
  // Read's answer: a whole message, or not `ok`: no more messages follow.
  virtual void OnRead(bool ok, const ::grpc::Slice& message) = 0;
  // Write's answer: the bytes are with the operating system; not `ok`: the stream is broken.
  virtual void OnWritten(bool ok) = 0;
  // The last event, after End: why the stream ended, as far as this side knows. The Stream may be
  // destroyed now and not before.
  virtual void OnEnded(const Status& status) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Starts the events. Keeps `events` until OnEnded.
  virtual void Start(std::shared_ptr<StreamEvents> events) = 0;
  // At most one Read and one Write may be in progress.
  virtual void Read() = 0;
  virtual void Write(::grpc::ByteBuffer message) = 0;
  // Breaks the stream: reads and writes in progress fail soon.
  virtual void Cancel() = 0;
  // Call it once, when no read or write is in progress. No other call may follow.
  virtual void End() = 0;
};

// Dials with the first stream of a connection of its own. The events tell whether the peer is
// there.
std::unique_ptr<Stream> DialStream(const std::shared_ptr<EventLoop>& loop,
                                   std::shared_ptr<::grpc::Channel> connection);

// The server's side. `on_stream` runs on a gRPC thread, with the peer as gRPC writes it
// ("ipv4:127.0.0.1:4711").
using OnStream = std::function<void(std::unique_ptr<Stream>, const std::string& peer)>;
std::unique_ptr<::grpc::CallbackGenericService> NewService(const std::shared_ptr<EventLoop>& loop,
                                                           OnStream on_stream);

}  // namespace longhaul::transport::grpc
