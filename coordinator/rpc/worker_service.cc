#include "coordinator/rpc/worker_service.h"

#include "coordinator/rpc/finish_now.h"
#include "coordinator/rpc/refuse_caller.h"
#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/upload.h"
#include "coordinator/rpc/worker_session.h"

namespace longhaul::coordinator {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  if (const Status status = port_->Check(*context); !status.ok()) {
    using Reactor = grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>;
    return RefuseCaller<Reactor>(*context, status);
  }
  return WorkerSession::Start(shell_, context, hello_timeout_);
}

grpc::ServerWriteReactor<v1::BlobChunk>* WorkerServiceImpl::FetchBlob(
    grpc::CallbackServerContext* context, const v1::FetchBlobRequest* request) {
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  if (const Status status = port_->Check(*context); !status.ok()) {
    return RefuseCaller<Reactor>(*context, status);
  }
  return SendBlob(*blobs_, *copies_, *request);
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkerServiceImpl::StoreShard(
    grpc::CallbackServerContext* context, v1::UploadReply*) {
  if (const Status status = port_->Check(*context); !status.ok()) {
    return RefuseCaller<grpc::ServerReadReactor<v1::UploadChunk>>(*context, status);
  }
  return StartUpload(
      copies_, &shell_->upload_threads(),
      [this](const std::string& sha256, uint64_t bytes) -> Status {
        if (shell_->ExpectsCopy(sha256, bytes)) return absl::OkStatus();
        return absl::FailedPreconditionError("nobody has asked for a copy of this shard");
      });
}

}  // namespace longhaul::coordinator
