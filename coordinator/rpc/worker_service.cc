#include "coordinator/rpc/worker_service.h"

#include <optional>

#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/rpc/upload.h"
#include "coordinator/rpc/worker_session.h"

namespace longhaul::coordinator {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  using Reactor = grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>;
  return Serve<Reactor>(
      gate_, *context, Call::kSession, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kWorkerStream));
        return WorkerSession::Start(shell_, gate_, leadership_, context, caller, hello_timeout_,
                                    std::move(place));
      });
}

grpc::ServerWriteReactor<v1::BlobChunk>* WorkerServiceImpl::FetchBlob(
    grpc::CallbackServerContext* context, const v1::FetchBlobRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  return Serve<Reactor>(
      gate_, *context, Call::kFetchForCell, [&](const Caller& caller) -> StatusOr<Reactor*> {
        LH_ASSIGN_OR_RETURN(const MayBe where, gate_->MayFetch(caller, request->sha256()));
        LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kFetch));
        return SendBlob(where.blob ? blobs_ : nullptr, where.copy ? copies_ : nullptr, *request,
                        std::move(place));
      });
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkerServiceImpl::StoreShard(
    grpc::CallbackServerContext* context, v1::UploadReply*) {
  using Reactor = grpc::ServerReadReactor<v1::UploadChunk>;
  const auto body = [&](const Caller& caller) -> StatusOr<Reactor*> {
    std::optional<WorkerId> from;
    if (caller.member) from.emplace(caller.member->worker_id);
    LH_ASSIGN_OR_RETURN(Place place, shell_->places().Take(caller, Use::kCopy));
    return StartUpload(
        copies_, shell_,
        {.place = std::move(place),
         .may_come = [this, from](const std::string& sha256, uint64_t bytes) -> Status {
           if (shell_->Read(
                   [&](const Views& views) { return views.ExpectsCopy(sha256, bytes, from); }))
             return absl::OkStatus();
           return absl::FailedPreconditionError("nobody has asked for a copy of this shard");
         },
         // A copy of another run's shard is no proof that this worker has the bytes.
         .may_skip =
             [this, from](const std::string& sha256) {
               return !from || shell_->Read([&](const Views& views) {
                 return views.HasCopyFor(*from, sha256);
               });
             },
         .done = [this, from](const std::string& sha256,
                              uint64_t /*bytes*/) { shell_->CopyStored(from, sha256); }});
  };
  return Serve<Reactor>(gate_, *context, Call::kStoreShard, body);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::SignObject(grpc::CallbackServerContext* context,
                                                        const v1::SignObjectRequest* request,
                                                        v1::SignObjectReply* reply) {
  using Reactor = grpc::ServerUnaryReactor;
  return Serve<Reactor>(gate_, *context, Call::kSignObject,
                        [&](const Caller& caller) -> StatusOr<Reactor*> {
                          std::optional<WorkerId> worker;
                          if (caller.member) worker.emplace(caller.member->worker_id);
                          return signer_->Sign(worker, *request, reply);
                        });
}

}  // namespace longhaul::coordinator
