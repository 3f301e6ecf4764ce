#include "transport/p2p/grpc/connection.h"

#include <grpc/slice.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/wire/link_header.h"

namespace longhaul::transport::grpc {
namespace {

::grpc::ByteBuffer Together(std::span<const std::byte> header, const FrameView& payload) {
  grpc_slice message = grpc_slice_malloc(header.size() + payload.size());
  uint8_t* at = GRPC_SLICE_START_PTR(message);
  for (const auto piece : {header, payload.header, payload.body}) {
    if (piece.empty()) continue;
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  }
  const ::grpc::Slice slice(message, ::grpc::Slice::STEAL_REF);
  return ::grpc::ByteBuffer(&slice, 1);
}

}  // namespace

std::shared_ptr<GrpcConnection> GrpcConnection::Start(std::shared_ptr<EventLoop> loop,
                                                      std::unique_ptr<Stream> stream,
                                                      std::shared_ptr<ConnectionTable> table,
                                                      std::string description,
                                                      ConnectionEvents connection_events) {
  std::shared_ptr<GrpcConnection> connection(
      new GrpcConnection(std::move(loop), std::move(stream), std::move(table),
                         std::move(description), std::move(connection_events)));
  connection->table_->Add(connection);
  connection->stream_->Start(connection);
  connection->reading_ = true;
  connection->stream_->Read();
  return connection;
}

GrpcConnection::GrpcConnection(std::shared_ptr<EventLoop> loop, std::unique_ptr<Stream> stream,
                               std::shared_ptr<ConnectionTable> table, std::string description,
                               ConnectionEvents connection_events)
    : loop_(std::move(loop)),
      stream_(std::move(stream)),
      table_(std::move(table)),
      description_(std::move(description)),
      connection_events_(std::move(connection_events)) {}

void GrpcConnection::SetEvents(std::shared_ptr<internal::ConnectionEvents> events) {
  events_ = std::move(events);
  if (std::exchange(events_set_, true) && connection_events_.admitted) {
    connection_events_.admitted();
  }
}

void GrpcConnection::Send(std::span<const std::byte> header, const FrameView& payload,
                          SendDone done) {
  if (closing_) {
    loop_->Post([done = std::move(done)] { done(absl::CancelledError("the channel is closed")); });
    return;
  }
  waiting_.push_back({header, payload, std::move(done)});
  WriteNext();
}

void GrpcConnection::WriteNext() {
  if (closing_ || writing_ || waiting_.empty()) return;
  Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  writing_ = std::move(next.done);
  stream_->Write(Together(next.header, next.payload));
}

void GrpcConnection::OnWritten(bool ok) {
  const auto self = shared_from_this();
  const SendDone done = std::exchange(writing_, nullptr);
  done(ok ? absl::OkStatus() : absl::UnavailableError("the connection broke"));
  if (!ok) CloseWith(absl::OkStatus());
  WriteNext();
  EndIfIdle();
}

void GrpcConnection::OnRead(bool ok, const ::grpc::Slice& message) {
  const auto self = shared_from_this();
  reading_ = false;
  if (!ok) CloseWith(absl::OkStatus());
  if (!closing_) {
    const std::span bytes(reinterpret_cast<const std::byte*>(message.begin()), message.size());
    const size_t header_bytes = std::min(bytes.size(), wire::kLinkHeaderBytes);
    const auto events = events_;
    if (events) events->OnMessage(bytes.first(header_bytes), bytes.subspan(header_bytes));
  }
  if (!closing_) {
    // Only now: what the link has not dealt with stays with gRPC and its flow control.
    reading_ = true;
    stream_->Read();
  }
  EndIfIdle();
}

void GrpcConnection::CloseWith(const Status& reason) {
  if (std::exchange(closing_, true)) return;
  reason_ = reason;
  stream_->Cancel();
  if (connection_events_.closed) connection_events_.closed();
  // Never inside the call that closes.
  loop_->Post([self = shared_from_this()] { self->EndIfIdle(); });
}

void GrpcConnection::EndIfIdle() {
  if (!closing_ || reading_ || writing_ || std::exchange(ended_, true)) return;
  stream_->End();
}

void GrpcConnection::OnEnded(const Status& status) {
  const auto self = shared_from_this();
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& w : waiting) w.done(absl::CancelledError("the channel is closed"));
  stream_.reset();
  if (reason_.ok()) {
    reason_ = absl::UnavailableError(status.ok() ? "the peer ended the connection"
                                                 : std::string(Message(status)));
  }
  if (const auto events = std::exchange(events_, nullptr)) events->OnClosed(reason_);
  table_->Remove(self);
}

}  // namespace longhaul::transport::grpc
