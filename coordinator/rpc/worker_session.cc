#include "coordinator/rpc/worker_session.h"

#include <fmt/core.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "base/peer_log.h"
#include "base/units.h"
#include "proto/identity/signature.h"
#include "proto/rpc/caller.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

WorkerSession* WorkerSession::Start(Shell* shell, const Gate* gate, Leadership* leadership,
                                    grpc::CallbackServerContext* context, const Caller& caller,
                                    absl::Duration hello_timeout, Place place) {
  // Not make_shared: the constructor is private.
  std::shared_ptr<WorkerSession> session(
      new WorkerSession(shell, gate, leadership, context, caller, std::move(place)));
  WorkerSession* raw = session.get();
  // Weak: the timer must not keep a session alive that has ended.
  shell->CallAfter(hello_timeout, [weak = std::weak_ptr(session), hello_timeout] {
    const std::shared_ptr<WorkerSession> late = weak.lock();
    if (late == nullptr) return;
    const std::lock_guard lock(late->mutex_);
    if (late->id_.has_value()) return;
    late->EndLocked(DeadlineExceeded("no hello within {} s of the session's start; dial again",
                                     absl::ToInt64Seconds(hello_timeout)));
  });
  raw->self_ = std::move(session);
  raw->StartRead(&raw->incoming_);
  return raw;
}

// ---- Reading -----------------------------------------------------------------------

void WorkerSession::OnReadDone(bool ok) {
  if (!ok) {
    // The worker closed its side, or the connection is gone.
    End(absl::OkStatus());
    return;
  }
  bool joined = false;
  {
    const std::lock_guard lock(mutex_);
    joined = id_.has_value();
  }
  if (joined) {
    TakeMessage();
    return;
  }
  if (const Status status = TakeHello(); !status.ok()) {
    LogAboutPeer(LogLevel::kWarn, host_,
                 fmt::format("a worker's session from {} was refused: {}", host_, Message(status)));
    End(status);
  }
}

Status WorkerSession::TakeHello() {
  if (!incoming_.has_hello()) {
    return absl::InvalidArgumentError(
        "a session begins with hello, and another message came; is the worker of the same "
        "version?");
  }
  // Under the lock, so that the shell's first command for this session finds its id.
  const std::lock_guard lock(mutex_);
  if (end_.has_value()) return absl::OkStatus();
  LH_RETURN_IF_ERROR(AdmitHello(incoming_.mutable_hello()));
  if (caller_.member && caller_.member->worker_id != incoming_.hello().worker_id()) {
    return PermissionDenied("the certificate of {} is for another worker's id than this hello has",
                            caller_.member->name);
  }
  // A worker can choose its own name in the hello, so the certificate's name replaces it.
  if (caller_.member) incoming_.mutable_hello()->set_name(caller_.member->name);
  const v1::Hello& hello = incoming_.hello();
  LH_RETURN_IF_ERROR(leadership_->OnWorker({.worker = hello.name(),
                                            .term = hello.term(),
                                            .tenure = Tenure(hello.tenure()),
                                            .leader_address = hello.leader_address(),
                                            .change = hello.change()}));
  LH_ASSIGN_OR_RETURN(id_, shell_->Join(self_, std::move(*incoming_.mutable_hello())));
  ReadNextLocked();
  return absl::OkStatus();
}

void WorkerSession::TakeMessage() {
  SessionId id;
  const size_t bytes = incoming_.ByteSizeLong();  // with what AdmitReport drops
  if (const Status status = AdmitReport(&incoming_); !status.ok()) {
    LogAboutPeer(LogLevel::kWarn, host_,
                 fmt::format("a worker's session from {} was ended: {}", host_, Message(status)));
    End(status);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (end_.has_value()) return;
    id = *id_;
    // Stops reading above kMaxUntaken, so a fast worker cannot fill the coordinator's memory.
    untaken_.push_back(bytes);
    untaken_bytes_ += bytes;
    const MonoTime now = Now();
    read_from_ = now + std::max(rate_.Take(now), byte_rate_.Take(now, static_cast<double>(bytes)));
  }
  const Signature signature = SignatureOfDigests();
  shell_->Say(id, std::move(incoming_), signature);
  const std::lock_guard lock(mutex_);
  ReadNextLocked();
}

Signature WorkerSession::SignatureOfDigests() const {
  if (!caller_.member || !incoming_.step().has_digests()) return Signature::kNone;
  const v1::StepDigests& digests = incoming_.step().digests();
  return IsSignedBy(CertificateOf(*context_), kSignedAsDigests, digests.body(), digests.signature())
             ? Signature::kGood
             : Signature::kBad;
}

void WorkerSession::Taken(size_t messages) {
  const std::lock_guard lock(mutex_);
  for (; messages > 0 && !untaken_.empty(); --messages) {
    untaken_bytes_ -= untaken_.front();
    untaken_.pop_front();
  }
  if (reading_paused_) ReadNextLocked();
}

void WorkerSession::ReadNextLocked() {
  if (end_.has_value()) return;
  const absl::Duration wait = read_from_ - Now();
  reading_paused_ = untaken_.size() >= kMaxUntaken || untaken_bytes_ >= kMaxUntakenBytes ||
                    wait > absl::ZeroDuration();
  if (!reading_paused_) {
    incoming_.Clear();
    StartRead(&incoming_);
  } else if (wait > absl::ZeroDuration()) {
    shell_->CallAfter(wait, [weak = std::weak_ptr(self_)] {
      const std::shared_ptr<WorkerSession> session = weak.lock();
      if (session == nullptr) return;
      const std::lock_guard lock(session->mutex_);
      if (session->reading_paused_) session->ReadNextLocked();
    });
  }
}

// ---- Writing -----------------------------------------------------------------------

void WorkerSession::Send(v1::WorkerCommand command) {
  const std::lock_guard lock(mutex_);
  if (end_.has_value() || close_after_sending_.has_value()) return;
  command.set_term(leadership_->term());
  command.set_tenure(leadership_->tenure().value());
  command.set_change(leadership_->committed());
  const size_t bytes = command.ByteSizeLong();
  // One command may be larger than the limit.
  if (outgoing_.size() >= kMaxOutgoing ||
      (!outgoing_.empty() && outgoing_bytes_ + bytes > kMaxOutgoingBytes)) {
    EndLocked(ResourceExhausted("{} commands of {} wait to be read by this worker; dial again",
                                outgoing_.size(), FormatBytes(outgoing_bytes_)));
    return;
  }
  outgoing_.push_back(std::move(command));
  outgoing_bytes_ += bytes;
  WriteNextLocked();
}

void WorkerSession::WriteNextLocked() {
  if (writing_ || end_.has_value()) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  } else if (close_after_sending_.has_value()) {
    EndLocked(*close_after_sending_);
  }
}

void WorkerSession::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_bytes_ -= std::min(outgoing_bytes_, outgoing_.front().ByteSizeLong());
  outgoing_.pop_front();
  if (end_.has_value()) {
    // EndLocked left Finish to this call, as gRPC must not finish during a write.
    if (!std::exchange(finished_, true)) Finish(ToGrpc(*end_));
    return;
  }
  if (!ok) {
    EndLocked(absl::OkStatus());
    return;
  }
  WriteNextLocked();
}

// ---- The end -----------------------------------------------------------------------

void WorkerSession::Close(const std::string& why, bool retry) {
  const std::lock_guard lock(mutex_);
  if (end_.has_value() || close_after_sending_.has_value()) return;
  close_after_sending_ = retry ? absl::UnavailableError(why) : absl::AbortedError(why);
  WriteNextLocked();
}

void WorkerSession::OnCancel() {
  End(absl::CancelledError("the connection is gone"));
}

void WorkerSession::End(const Status& status) {
  const std::lock_guard lock(mutex_);
  EndLocked(status);
}

void WorkerSession::EndLocked(const Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  if (writing_) {
    // Finish must wait for the write, and the worker may never read it: cancelling ends both.
    context_->TryCancel();
    return;
  }
  finished_ = true;
  Finish(ToGrpc(status));
}

void WorkerSession::OnDone() {
  std::optional<SessionId> id;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    id = id_;
    if (end_.has_value() && !end_->ok()) why = Message(*end_);
  }
  if (id.has_value()) {
    // A revoked member is gone for good; any other worker may come back.
    if (const Status status = gate_->StillMember(caller_); !status.ok()) {
      shell_->Leave(*id, std::string(Message(status)), /*for_good=*/true);
    } else {
      shell_->Leave(*id, why.empty() ? "its connection was closed" : why);
    }
  }
  self_.reset();  // Last: this may be the end of `this`.
}

}  // namespace longhaul::coordinator
