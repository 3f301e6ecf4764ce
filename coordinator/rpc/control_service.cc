#include "coordinator/rpc/control_service.h"

#include <memory>
#include <utility>

#include "coordinator/rpc/finish_now.h"
#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/refuse_caller.h"
#include "coordinator/rpc/send_blob.h"
#include "coordinator/rpc/submit_check.h"
#include "coordinator/rpc/upload.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

using Context = grpc::CallbackServerContext;

grpc::ServerUnaryReactor* Answer(Context* context, const Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A call that the state answers. Ends at once when the caller goes away.
template <class Reply>
class WaitingCall : public grpc::ServerUnaryReactor {
 public:
  using Done = typename PendingCalls<Reply>::Done;
  WaitingCall(Shell* shell, Reply* reply) : shell_(shell), reply_(reply) {}

  // For the shell. gRPC calls neither OnCancel nor OnDone before the service's method has returned,
  // so `ask` may answer before the id is known here.
  template <class Ask>
  WaitingCall* Start(const Ask& ask) {
    id_ = ask([this](StatusOr<Reply> reply) {
      if (reply.ok()) *reply_ = std::move(*reply);
      Finish(ToGrpc(reply.status()));
    });
    return this;
  }

  void OnCancel() override {
    if (shell_->Drop(id_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  Shell* const shell_;
  Reply* const reply_;
  RequestId id_;
};

}  // namespace

grpc::ServerUnaryReactor* ControlServiceImpl::Info(Context* context, const v1::InfoRequest*,
                                                   v1::InfoReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kInfo);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  uint32_t connected = 0;
  for (const v1::WorkerStatus& worker :
       shell_->Read([&](const Views& views) { return views.Workers(Now()); })) {
    connected += worker.connected() ? 1 : 0;
  }
  reply->set_version(version_);
  reply->set_workers(connected);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlServiceImpl::MissingBlobs(Context* context,
                                                           const v1::MissingBlobsRequest* request,
                                                           v1::MissingBlobsReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kMissingBlobs);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  if (request->sha256_size() > kMaxBlobsAsked) {
    return Answer(context, InvalidArgument("expected at most {} hashes in a question, got {}",
                                           kMaxBlobsAsked, request->sha256_size()));
  }
  // What others have sent is missing like what nobody has.
  const OwnBlobs::Test own = own_blobs_->Of(*caller);
  for (const std::string& sha256 : request->sha256()) {
    if (own(sha256) && blobs_->Claim(sha256)) {
      own_blobs_->Claimed(*caller, sha256);
    } else {
      reply->add_sha256(sha256);
    }
  }
  return Answer(context, absl::OkStatus());
}

grpc::ServerReadReactor<v1::UploadChunk>* ControlServiceImpl::UploadBlob(Context* context,
                                                                         v1::UploadReply*) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kUploadBlob);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerReadReactor<v1::UploadChunk>>(*context, caller.status());
  }
  return StartUpload(blobs_, &shell_->upload_threads(),
                     {.may_skip = own_blobs_->Of(*caller),
                      .done = [this, caller = *caller](const std::string& sha256) {
                        own_blobs_->Uploaded(caller, sha256);
                      }});
}

grpc::ServerUnaryReactor* ControlServiceImpl::Submit(Context* context,
                                                     const v1::SubmitRequest* request,
                                                     v1::SubmitReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kSubmit);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  StatusOr<RunSpec> spec = CheckSubmit(
      *request, *blobs_, {MayAll(*caller), own_blobs_->Of(*caller), own_blobs_->lists()});
  if (!spec.ok()) return Answer(context, spec.status());
  auto* call = new WaitingCall<v1::SubmitReply>(shell_, reply);
  return call->Start([&](Shell::SubmitDone done) {
    const std::string owner = caller->member ? caller->member->name : "";
    return shell_->Submit(*std::move(spec), *request, {owner, MayAll(*caller)}, std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlServiceImpl::PlanRun(Context* context,
                                                      const v1::SubmitRequest* request,
                                                      v1::PlanReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kPlanRun);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  StatusOr<RunSpec> spec =
      CheckPlan(*request, *blobs_, {MayAll(*caller), own_blobs_->Of(*caller), own_blobs_->lists()});
  if (!spec.ok()) return Answer(context, spec.status());
  auto* call = new WaitingCall<v1::PlanReply>(shell_, reply);
  return call->Start([&](Shell::PlanDone done) {
    return shell_->PlanRun(*std::move(spec), *request, std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlServiceImpl::StopRun(Context* context,
                                                      const v1::StopRequest* request,
                                                      v1::StopReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kStopRun);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  const StatusOr<std::string> run = gate_->OwnRun(*caller, request->run());
  if (!run.ok()) return Answer(context, run.status());
  auto* call = new WaitingCall<v1::StopReply>(shell_, reply);
  return call->Start(
      [&](Shell::StopDone done) { return shell_->StopRun(*run, request->now(), std::move(done)); });
}

grpc::ServerUnaryReactor* ControlServiceImpl::SetReplicas(Context* context,
                                                          const v1::ReplicasRequest* request,
                                                          v1::ReplicasReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kSetReplicas);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  const StatusOr<std::string> run = gate_->OwnRun(*caller, request->run());
  if (!run.ok()) return Answer(context, run.status());
  auto* call = new WaitingCall<v1::ReplicasReply>(shell_, reply);
  return call->Start([&](Shell::ReplicasDone done) {
    return shell_->SetReplicas(*run, request->replicas(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlServiceImpl::ListCheckpoints(Context* context,
                                                              const v1::CheckpointsRequest* request,
                                                              v1::CheckpointsReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kListCheckpoints);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  const StatusOr<std::string> run = gate_->OwnRun(*caller, request->run());
  if (!run.ok()) return Answer(context, run.status());
  v1::CheckpointsRequest asked = *request;
  asked.set_run(*run);
  auto* call = new WaitingCall<v1::CheckpointsReply>(shell_, reply);
  return call->Start(
      [&](Shell::CheckpointsDone done) { return shell_->ListCheckpoints(asked, std::move(done)); });
}

grpc::ServerWriteReactor<v1::BlobChunk>* ControlServiceImpl::FetchBlob(
    Context* context, const v1::FetchBlobRequest* request) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kFetchBlob);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerWriteReactor<v1::BlobChunk>>(*context, caller.status());
  }
  const StatusOr<MayBe> where = gate_->MayFetch(*caller, request->sha256());
  if (!where.ok()) return FinishNow<grpc::ServerWriteReactor<v1::BlobChunk>>(where.status());
  return SendBlob(where->blob ? blobs_ : nullptr, where->copy ? copies_ : nullptr, *request);
}

grpc::ServerUnaryReactor* ControlServiceImpl::RemoveRun(Context* context,
                                                        const v1::RemoveRunRequest* request,
                                                        v1::RemoveRunReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kRemoveRun);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  const StatusOr<std::string> run = gate_->OwnRun(*caller, request->run());
  if (!run.ok()) return Answer(context, run.status());
  auto* call = new WaitingCall<v1::RemoveRunReply>(shell_, reply);
  return call->Start(
      [&](Shell::RemoveDone done) { return shell_->RemoveRun(*run, std::move(done)); });
}

grpc::ServerUnaryReactor* ControlServiceImpl::CollectGarbage(
    Context* context, const v1::CollectGarbageRequest* request, v1::CollectGarbageReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kCollectGarbage);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  auto* call = new WaitingCall<v1::CollectGarbageReply>(shell_, reply);
  return call->Start(
      [&](Shell::GarbageDone done) { return shell_->CollectGarbage(*request, std::move(done)); });
}

grpc::ServerUnaryReactor* ControlServiceImpl::TraceRun(Context* context,
                                                       const v1::TraceRequest* request,
                                                       v1::TraceReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kTraceRun);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  const StatusOr<std::string> run = gate_->OwnRun(*caller, request->run());
  if (!run.ok()) return Answer(context, run.status());
  auto* call = new WaitingCall<v1::TraceReply>(shell_, reply);
  return call->Start([&](Shell::TraceDone done) {
    return shell_->TraceRun(*run, request->steps(), std::move(done));
  });
}

grpc::ServerUnaryReactor* ControlServiceImpl::ListRuns(Context* context, const v1::ListRunsRequest*,
                                                       v1::ListRunsReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kListRuns);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  // The oldest ones are left out where all would not fit into a message.
  size_t bytes = 0;
  for (v1::RunStatus& run : shell_->Read([&](const Views& views) { return views.Runs(); })) {
    if (!CheckOwner(*caller, run).ok()) continue;
    bytes += run.ByteSizeLong() + 16;
    if (bytes > kMaxMessageBytes) break;
    *reply->add_runs() = std::move(run);
  }
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlServiceImpl::GetRun(Context* context,
                                                     const v1::RunRequest* request,
                                                     v1::RunStatus* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kGetRun);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  StatusOr<v1::RunStatus> run =
      shell_->Read([&](const Views& views) { return views.RunOf(request->run()); });
  if (!run.ok()) return Answer(context, run.status());
  const Status own = CheckOwner(*caller, *run);
  if (own.ok()) *reply = *std::move(run);
  return Answer(context, own);
}

grpc::ServerUnaryReactor* ControlServiceImpl::ListWorkers(Context* context,
                                                          const v1::ListWorkersRequest*,
                                                          v1::ListWorkersReply* reply) {
  const StatusOr<Caller> caller = gate_->Admit(*context, Call::kListWorkers);
  if (!caller.ok()) {
    return RefuseCaller<grpc::ServerUnaryReactor>(*context, caller.status());
  }
  for (v1::WorkerStatus& worker :
       shell_->Read([&](const Views& views) { return views.Workers(Now()); })) {
    *reply->add_workers() = std::move(worker);
  }
  for (v1::MeasuredLink& link :
       shell_->Read([&](const Views& views) { return views.Links(Now()); })) {
    *reply->add_links() = std::move(link);
  }
  for (v1::RelayStatus& relay : shell_->Read([&](const Views& views) { return views.Relays(); })) {
    *reply->add_relays() = std::move(relay);
  }
  return Answer(context, absl::OkStatus());
}

}  // namespace longhaul::coordinator
