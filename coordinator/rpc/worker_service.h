// WorkerService: workers' sessions, the files that they fetch, and addresses that are signed for
// them.
#pragma once

#include "absl/time/time.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/sign_object.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/worker.grpc.pb.h"

namespace longhaul::coordinator {

class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  // All pointers must outlive the server. `hello_timeout`: the time within which a worker must send
  // its hello. `blobs`: users' data; `copies`: copies of checkpoint shards. `signer`: signs
  // addresses for workers.
  WorkerServiceImpl(Gate* gate, absl::Duration hello_timeout, Leadership* leadership, Shell* shell,
                    const BlobStore* blobs, const BlobStore* copies, ObjectSigner* signer)
      : gate_(gate),
        hello_timeout_(hello_timeout),
        leadership_(leadership),
        shell_(shell),
        blobs_(blobs),
        copies_(copies),
        signer_(signer) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::BlobChunk>* FetchBlob(grpc::CallbackServerContext* context,
                                                     const v1::FetchBlobRequest* request) override;

  grpc::ServerReadReactor<v1::UploadChunk>* StoreShard(grpc::CallbackServerContext* context,
                                                       v1::UploadReply* reply) override;
  grpc::ServerUnaryReactor* SignObject(grpc::CallbackServerContext* context,
                                       const v1::SignObjectRequest* request,
                                       v1::SignObjectReply* reply) override;

 private:
  Gate* const gate_;
  const absl::Duration hello_timeout_;
  Leadership* const leadership_;
  Shell* const shell_;
  const BlobStore* const blobs_;
  const BlobStore* const copies_;
  ObjectSigner* const signer_;
};

}  // namespace longhaul::coordinator
