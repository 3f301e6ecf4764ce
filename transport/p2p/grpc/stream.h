// gRPC's two ends of a bidirectional stream of raw messages, made to look alike. The one place
// where gRPC's callbacks, which come on its own threads, become tasks of the loop.
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
  // Read's answer: a whole message, or not `ok`: there will be no more.
  virtual void OnRead(bool ok, const ::grpc::Slice& message) = 0;
  // Write's answer: the bytes are with the operating system, or the stream is broken.
  virtual void OnWritten(bool ok) = 0;
  // The last one, after End: why the stream ended, as far as this side knows. The Stream may be
  // destroyed now and not before.
  virtual void OnEnded(const Status& status) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // From here on events come. Keeps `events` until OnEnded.
  virtual void Start(std::shared_ptr<StreamEvents> events) = 0;
  // One at a time each.
  virtual void Read() = 0;
  virtual void Write(::grpc::ByteBuffer message) = 0;
  // Breaks the stream: what is under way fails soon.
  virtual void Cancel() = 0;
  // Once, when nothing is under way: no other call after this.
  virtual void End() = 0;
};

// Dials with the first stream of a connection of its own; whether the peer is there shows in the
// events.
std::unique_ptr<Stream> DialStream(const std::shared_ptr<EventLoop>& loop,
                                   std::shared_ptr<::grpc::Channel> connection);

// The server's side. `on_stream` runs on a thread of gRPC's, with the peer as gRPC writes it
// ("ipv4:127.0.0.1:4711").
using OnStream = std::function<void(std::unique_ptr<Stream>, const std::string& peer)>;
std::unique_ptr<::grpc::CallbackGenericService> NewService(const std::shared_ptr<EventLoop>& loop,
                                                           OnStream on_stream);

}  // namespace longhaul::transport::grpc
