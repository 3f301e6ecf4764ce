// ControlService: the calls of the CLI.
#pragma once

#include <string>
#include <utility>

#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/leadership_source.h"
#include "coordinator/rpc/own_blobs.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/control.grpc.pb.h"

namespace longhaul::coordinator {

class ControlServiceImpl : public v1::ControlService::CallbackService {
 public:
  // All pointers must outlive the server. `blobs`: users' data; `copies`: copies of checkpoint
  // shards.
  ControlServiceImpl(Gate* gate, std::string version, Shell* shell, const BlobStore* blobs,
                     const BlobStore* copies, OwnBlobs* own_blobs, LeadershipSource leads = {})
      : gate_(gate),
        version_(std::move(version)),
        shell_(shell),
        blobs_(blobs),
        copies_(copies),
        own_blobs_(own_blobs),
        leads_(std::move(leads)) {}

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* Info(Context* context, const v1::InfoRequest* request,
                                 v1::InfoReply* reply) override;
  grpc::ServerUnaryReactor* MissingBlobs(Context* context, const v1::MissingBlobsRequest* request,
                                         v1::MissingBlobsReply* reply) override;
  grpc::ServerReadReactor<v1::UploadChunk>* UploadBlob(Context* context,
                                                       v1::UploadReply* reply) override;
  grpc::ServerUnaryReactor* Submit(Context* context, const v1::SubmitRequest* request,
                                   v1::SubmitReply* reply) override;
  grpc::ServerUnaryReactor* PlanRun(Context* context, const v1::SubmitRequest* request,
                                    v1::PlanReply* reply) override;
  grpc::ServerUnaryReactor* ListRuns(Context* context, const v1::ListRunsRequest* request,
                                     v1::ListRunsReply* reply) override;
  grpc::ServerUnaryReactor* GetRun(Context* context, const v1::RunRequest* request,
                                   v1::RunStatus* reply) override;
  grpc::ServerWriteReactor<v1::RunStatus>* WatchRun(Context* context,
                                                    const v1::RunRequest* request) override;
  grpc::ServerUnaryReactor* StopRun(Context* context, const v1::StopRequest* request,
                                    v1::StopReply* reply) override;
  grpc::ServerUnaryReactor* SetReplicas(Context* context, const v1::ReplicasRequest* request,
                                        v1::ReplicasReply* reply) override;
  grpc::ServerWriteReactor<v1::Event>* ListEvents(Context* context,
                                                  const v1::EventsRequest* request) override;
  grpc::ServerWriteReactor<v1::LogEntry>* ListLogs(Context* context,
                                                   const v1::LogsRequest* request) override;
  grpc::ServerUnaryReactor* ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                                        v1::ListWorkersReply* reply) override;
  grpc::ServerWriteReactor<v1::StepRecord>* ListSteps(Context* context,
                                                      const v1::StepsRequest* request) override;

  grpc::ServerUnaryReactor* ListCheckpoints(Context* context, const v1::CheckpointsRequest* request,
                                            v1::CheckpointsReply* reply) override;
  grpc::ServerWriteReactor<v1::BlobChunk>* FetchBlob(Context* context,
                                                     const v1::FetchBlobRequest* request) override;
  grpc::ServerUnaryReactor* RemoveRun(Context* context, const v1::RemoveRunRequest* request,
                                      v1::RemoveRunReply* reply) override;
  grpc::ServerUnaryReactor* CollectGarbage(Context* context,
                                           const v1::CollectGarbageRequest* request,
                                           v1::CollectGarbageReply* reply) override;
  grpc::ServerUnaryReactor* TraceRun(Context* context, const v1::TraceRequest* request,
                                     v1::TraceReply* reply) override;
  grpc::ServerUnaryReactor* SampleRun(Context* context, const v1::SampleRequest* request,
                                      v1::SampleReply* reply) override;

 private:
  Gate* const gate_;
  const std::string version_;
  Shell* const shell_;
  const BlobStore* const blobs_;
  const BlobStore* const copies_;
  OwnBlobs* const own_blobs_;
  const LeadershipSource leads_;
};

}  // namespace longhaul::coordinator
