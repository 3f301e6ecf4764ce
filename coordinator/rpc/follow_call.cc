#include "coordinator/rpc/follow_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

// Open calls, with which a refusal waits no more.
constexpr size_t kMostLate = 64;

}  // namespace

// ---- One call ----------------------------------------------------------------------

void* FollowCall::Under(Tag* tag) {
  ++under_way_;
  return tag;
}

void FollowCall::StartRead(v1::FollowerMessage* message) {
  stream_.Read(message, Under(&read_));
}

void FollowCall::StartWrite(const v1::FollowedMessage& message) {
  stream_.Write(message, Under(&written_));
}

void FollowCall::Finish(const Status& status) {
  stream_.Finish(ToGrpc(status), Under(&finish_));
}

void FollowCall::FinishAfter(absl::Duration delay, const Status& status) {
  if (port_->open() > kMostLate) {
    Finish(status);
    return;
  }
  late_ = status;
  alarm_.Set(port_->messages_.get(), absl::ToChronoTime(absl::Now() + delay), Under(&delayed_));
}

void FollowCall::Happened(Event event, bool ok) {
  switch (event) {
    case Event::kCalled:
      break;  // the other thread's
    case Event::kDelayed:
      Finish(late_);
      break;
    case Event::kRead:
      handler_->OnReadDone(ok);
      break;
    case Event::kWritten:
      handler_->OnWriteDone(ok);
      break;
    case Event::kFinished:
      finished_ = true;
  }
  if (--under_way_ > 0 || !finished_) return;
  FollowPort* const port = port_;
  if (handler_ != nullptr) handler_->OnDone();
  delete this;
  port->Ended();
}

// ---- All calls ---------------------------------------------------------------------

FollowPort::FollowPort(StandbyServiceBase* service, grpc::ServerBuilder* builder, Accept accept)
    : service_(service),
      accept_(std::move(accept)),
      calls_(builder->AddCompletionQueue()),
      messages_(builder->AddCompletionQueue()) {}

void FollowPort::Start() {
  {
    const std::lock_guard lock(mutex_);
    RequestLocked();
  }
  accepts_ = std::thread([this] { AcceptLoop(); });
  moves_messages_ = std::thread([this] { MessageLoop(); });
}

void FollowPort::Stop() {
  if (!accepts_.joinable()) return;
  {
    // A queue that is shut down takes no request.
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  calls_->Shutdown();
  accepts_.join();
  {
    // Until then somebody may begin to write, which the queue has to take.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }
  messages_->Shutdown();
  moves_messages_.join();
}

// The next call, whenever it comes.
void FollowPort::RequestLocked() {
  auto* const call = new FollowCall(this);
  service_->RequestFollow(&call->context_, &call->stream_, messages_.get(), calls_.get(),
                          &call->called_);
}

void FollowPort::AcceptLoop() {
  void* tag = nullptr;
  bool ok = false;
  while (calls_->Next(&tag, &ok)) {
    FollowCall* const call = static_cast<FollowCall::Tag*>(tag)->call;
    if (!ok) {  // the server has shut down
      delete call;
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      ++open_;
      if (!closing_) RequestLocked();
    }
    accept_(call);
  }
}

void FollowPort::MessageLoop() {
  void* tag = nullptr;
  bool ok = false;
  while (messages_->Next(&tag, &ok)) {
    const auto [call, event] = *static_cast<FollowCall::Tag*>(tag);
    call->Happened(event, ok);
  }
}

size_t FollowPort::open() {
  const std::lock_guard lock(mutex_);
  return open_;
}

void FollowPort::Ended() {
  const std::lock_guard lock(mutex_);
  --open_;
  changed_.notify_all();
}

}  // namespace longhaul::coordinator
