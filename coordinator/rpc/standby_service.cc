#include "coordinator/rpc/standby_service.h"

#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/take_copy.h"
#include "proto/rpc/auth.h"

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
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  return Serve<Reactor>(
      gate_, *context, Call::kFetchCopy, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_ASSIGN_OR_RETURN(Place place, followed_.shell->places().Take(caller, Use::kFetch));
        return SendBlob(followed_.blobs, followed_.copies, *request, std::move(place));
      });
}

grpc::ServerReadReactor<v1::CopyChunk>* StandbyServiceImpl::GiveCopy(Context* context,
                                                                     v1::CopyReply*) {
  using Reactor = grpc::ServerReadReactor<v1::CopyChunk>;
  return Serve<Reactor>(
      gate_, *context, Call::kGiveCopy, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_ASSIGN_OR_RETURN(Place place, followed_.shell->places().Take(caller, Use::kUpload));
        return TakeCopy(followed_.blobs, followed_.copies, followed_.shell, std::move(place));
      });
}

grpc::ServerUnaryReactor* StandbyServiceImpl::GetTerm(Context*, const v1::GetTermRequest*,
                                                      v1::GetTermReply* reply) {
  reply->set_term(followed_.leadership->term());
  return FinishNow<grpc::ServerUnaryReactor>(absl::OkStatus());
}

}  // namespace longhaul::coordinator
