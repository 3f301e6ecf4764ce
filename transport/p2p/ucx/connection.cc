#include "transport/p2p/ucx/connection.h"

#include <fmt/core.h>

#include <array>
#include <utility>

namespace longhaul::transport::ucx {
namespace {

// An endpoint that nobody answers fails within this time or is given up.
constexpr absl::Duration kHandshakeLimit = absl::Seconds(10);
// The same where the backend ends, which waits for it.
constexpr absl::Duration kLastHandshakeLimit = absl::Seconds(1);

}  // namespace

// One message under way: what UCX points to until it is done.
struct UcxConnection::Operation {
  std::shared_ptr<UcxConnection> connection;
  SendDone done;
  std::array<ucp_dt_iov_t, 2> pieces;
};

std::shared_ptr<UcxConnection> UcxConnection::Create(std::shared_ptr<EventLoop> loop,
                                                     std::shared_ptr<Worker> worker,
                                                     const std::shared_ptr<ConnectionTable>& table,
                                                     const std::string& own_text,
                                                     const std::string& peer_text) {
  std::shared_ptr<UcxConnection> connection(new UcxConnection(
      std::move(loop), std::move(worker), table, fmt::format("{} <-> {}", own_text, peer_text)));
  table->connections.Add(connection);
  return connection;
}

std::function<void(Status)> UcxConnection::ErrorHandler() {
  // Weak: an endpoint that fails late must not bring its connection back.
  return [weak = weak_from_this()](const Status& status) {
    const auto self = weak.lock();
    if (!self) return;
    self->failed_ = true;
    self->CloseWith(status);
  };
}

void UcxConnection::Connect(const SocketAddress& peer) {
  dialled_ = peer;
  if (closing_) return;
  knock_ = Knock::Start(loop_, peer, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->closing_) return;
    self->Begin(Endpoint::Connect(self->worker_, self->dialled_, self->ErrorHandler()));
  });
}

void UcxConnection::Accept(ucp_conn_request_h request) {
  StatusOr<std::unique_ptr<Endpoint>> endpoint = absl::UnknownError("not made");
  table_->async_thread->MakeWhileHeld(
      [&] { endpoint = Endpoint::Accept(worker_, request, ErrorHandler()); });
  Begin(std::move(endpoint));
}

void UcxConnection::Begin(StatusOr<std::unique_ptr<Endpoint>> endpoint) {
  if (!endpoint.ok()) return CloseWith(endpoint.status());
  endpoint_ = *std::move(endpoint);
  table_->by_endpoint[endpoint_->get()] = this;
  Flush();
}

void UcxConnection::Flush() {
  if (endpoint_ == nullptr || closing_) return;
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& w : waiting) Submit(std::move(w));
}

void UcxConnection::Send(std::span<const std::byte> header, const FrameView& payload,
                         SendDone done) {
  if (closing_) {
    loop_->Post([done = std::move(done)] { done(absl::CancelledError("the channel is closed")); });
    return;
  }
  ++under_way_;
  Waiting waiting{header, payload, std::move(done)};
  if (endpoint_ != nullptr && !table_->inside_ucx && waiting_.empty()) {
    Submit(std::move(waiting));
    return;
  }
  if (waiting_.empty()) table_->to_flush.push_back(shared_from_this());
  waiting_.push_back(std::move(waiting));
}

void UcxConnection::Submit(Waiting waiting) {
  auto operation = std::make_unique<Operation>();
  operation->connection = shared_from_this();
  operation->done = std::move(waiting.done);
  size_t count = 0;
  for (const auto piece : {waiting.payload.header, waiting.payload.body}) {
    if (piece.empty()) continue;
    // UCX reads only; its struct serves receiving too.
    operation->pieces[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
  // REPLY tells the receiver's callback which endpoint it was.
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = &UcxConnection::OnSent;
  params.user_data = operation.get();
  const void* data = operation->pieces.data();
  params.datatype = ucp_dt_make_iov();
  if (count < 2) {
    params.datatype = ucp_dt_make_contig(1);
    data = count == 0 ? nullptr : operation->pieces[0].buffer;
    count = count == 0 ? 0 : operation->pieces[0].length;
  }
  void* const request = ucp_am_send_nbx(endpoint_->get(), kMessageId, waiting.header.data(),
                                        waiting.header.size(), data, count, &params);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(operation.release());  // OnSent has it
    return;
  }
  const ucs_status_t status = UCS_PTR_STATUS(request);
  const Status sent = status == UCS_OK ? absl::OkStatus() : FromUcs("sending failed", status);
  loop_->Post([sent, op = std::shared_ptr<Operation>(std::move(operation))] {
    --op->connection->under_way_;
    op->done(sent);
    op->connection->FinishIfDone();
  });
  if (!sent.ok()) CloseWith(sent);
}

void UcxConnection::OnSent(void* request, ucs_status_t status, void* user_data) {
  const std::unique_ptr<Operation> operation(static_cast<Operation*>(user_data));
  ucp_request_free(request);
  --operation->connection->under_way_;
  operation->done(status == UCS_OK ? absl::OkStatus() : FromUcs("sending failed", status));
  operation->connection->FinishIfDone();
}

void UcxConnection::Deliver(std::span<const std::byte> header, std::span<const std::byte> payload) {
  heard_ = true;
  if (closing_) return DropOnLoop();
  const auto events = events_;
  if (events) events->OnMessage(header, payload);
}

void UcxConnection::CloseWith(const Status& reason) {
  if (!std::exchange(closing_, true)) reason_ = reason;
  if (knock_) knock_->Stop();
  DropOnLoop();
}

void UcxConnection::DropOnLoop() {
  // Never from inside one of UCX's callbacks.
  loop_->Post([self = shared_from_this()] { self->Drop(); });
}

void UcxConnection::Drop() {
  if (dropping_) return;
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& w : waiting) {
    --under_way_;
    w.done(absl::CancelledError("the channel is closed"));
  }
  if (endpoint_ == nullptr || heard_ || failed_) return DropEndpoint();
  if (drop_timer_ && !table_->shutting_down) return;
  if (drop_timer_) loop_->CancelTimer(*drop_timer_);
  const absl::Duration limit = table_->shutting_down ? kLastHandshakeLimit : kHandshakeLimit;
  drop_timer_ = loop_->AddTimer(Now() + limit, [self = shared_from_this()] {
    self->drop_timer_.reset();
    self->DropEndpoint();
  });
}

void UcxConnection::DropEndpoint() {
  dropping_ = true;
  if (drop_timer_) loop_->CancelTimer(*drop_timer_);
  if (endpoint_ == nullptr) {
    endpoint_closed_ = true;
    FinishIfDone();
    return;
  }
  table_->async_thread->Flush();
  table_->inside_ucx = true;
  ucp_worker_progress(worker_->get());  // what the thread has left to us
  table_->by_endpoint.erase(endpoint_->get());
  // Cancelled sends are called back from here.
  endpoint_->Close([self = shared_from_this()] {
    self->endpoint_closed_ = true;
    self->FinishIfDone();
  });
  table_->inside_ucx = false;
}

void UcxConnection::FinishIfDone() {
  if (!endpoint_closed_ || under_way_ != 0 || std::exchange(finished_, true)) return;
  const bool never_connected = dialled_.size != 0 && !heard_ && !absl::IsCancelled(reason_);
  if (never_connected && !table_->shutting_down) {
    FindConnectError(loop_, dialled_,
                     [self = shared_from_this()](const Status& why) { self->Finish(why); });
    return;
  }
  // Not inside UCX's callback either.
  loop_->Post([self = shared_from_this()] { self->Finish(self->reason_); });
}

void UcxConnection::Finish(const Status& reason) {
  endpoint_.reset();
  if (const auto events = std::exchange(events_, nullptr)) events->OnClosed(reason);
  table_->connections.Remove(shared_from_this());
}

}  // namespace longhaul::transport::ucx
