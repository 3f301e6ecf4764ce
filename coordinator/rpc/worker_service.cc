#include "coordinator/rpc/worker_service.h"

#include <optional>

#include "coordinator/rpc/finish_now.h"
#include "coordinator/rpc/refuse_caller.h"
#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/upload.h"
#include "coordinator/rpc/worker_session.h"

namespace longhaul::coordinator {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kSession);
  if (!caller.ok()) {
    using Reactor = grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>;
    return RefuseCaller<Reactor>(*context, caller.status());
  }
  return WorkerSession::Start(shell_, gate_, leadership_, context, *caller, hello_timeout_);
}

grpc::ServerWriteReactor<v1::BlobChunk>* WorkerServiceImpl::FetchBlob(
    grpc::CallbackServerContext* context, const v1::FetchBlobRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kFetchForCell);
  if (!caller.ok()) {
    return RefuseCaller<Reactor>(*context, caller.status());
  }
  const StatusOr<MayBe> where = gate_->MayFetch(*caller, request->sha256());
  if (!where.ok()) return FinishNow<Reactor>(where.status());
  return SendBlob(where->blob ? blobs_ : nullptr, where->copy ? copies_ : nullptr, *request);
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkerServiceImpl::StoreShard(
    grpc::CallbackServerContext* context, v1::UploadReply*) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kStoreShard);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerReadReactor<v1::UploadChunk>>(*context, caller.status());
  }
  std::optional<WorkerId> from;
  if (caller->member) from.emplace(caller->member->worker_id);
  return StartUpload(
      copies_, &shell_->upload_threads(),
      {.may_come = [this, from](const std::string& sha256, uint64_t bytes) -> Status {
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
       .done = [this, from](const std::string& sha256) { shell_->CopyStored(from, sha256); }});
}

}  // namespace longhaul::coordinator
