#include "coordinator/rpc/standby_service.h"

#include "base/address.h"
#include "coordinator/rpc/refuse_caller.h"
#include "coordinator/rpc/send_blob.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

// A standby gets everything, the authority's key with it.
Status CheckEncrypted(const Caller& caller) {
  if (caller.member) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this coordinator was started with --insecure; a standby needs TLS, by which workers and "
      "coordinators know each other");
}

}  // namespace

void StandbyServiceImpl::Accept(FollowCall* call) {
  const StatusOr<Caller> caller = gate_->Admit(call->context(), Call::kFollow);
  if (!caller.ok()) {
    LogRefusal(call->context(), caller.status());
    call->FinishAfter(absl::FromChrono(kRefusalDelay), caller.status());
  } else if (const Status status = CheckEncrypted(*caller); !status.ok()) {
    call->Finish(status);
  } else {
    FollowSession::Start(followed_, call);
  }
}

grpc::ServerWriteReactor<v1::BlobChunk>* StandbyServiceImpl::FetchCopy(
    Context* context, const v1::FetchBlobRequest* request) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kFetchCopy);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerWriteReactor<v1::BlobChunk>>(*context, caller.status());
  }
  return SendBlob(followed_.blobs, followed_.copies, *request);
}

grpc::ServerUnaryReactor* StandbyServiceImpl::Fence(Context* context,
                                                    const v1::FenceRequest* request,
                                                    v1::FenceReply*) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kFence);
  if (!caller.ok()) return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  Status status = CheckEncrypted(*caller);
  const uint64_t term = followed_.leadership->term();
  if (status.ok() && request->term() <= term) {
    status =
        FailedPrecondition("this coordinator has term {}, the caller {}", term, request->term());
  }
  if (status.ok()) {
    followed_.leadership->Yield(request->term(), ReachedAt(request->address(), PeerHost(*context)));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* StandbyServiceImpl::GetTerm(Context* context, const v1::GetTermRequest*,
                                                      v1::GetTermReply* reply) {
  reply->set_term(followed_.leadership->term());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace longhaul::coordinator
