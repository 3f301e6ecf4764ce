#include "coordinator/rpc/upload.h"

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

// One read at a time, so nothing here needs a lock; a cancelled call ends its read.
class UploadReactor : public grpc::ServerReadReactor<v1::UploadChunk> {
 public:
  UploadReactor(const BlobStore* blobs, WorkThreads* threads, UploadRules rules)
      : blobs_(blobs), threads_(threads), rules_(std::move(rules)) {
    // Says that the caller is let in: before, its connection may say little (guarded_port.h).
    StartSendInitialMetadata();
    StartRead(&chunk_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End();
      return;
    }
    if (const Status status = Take(); !status.ok()) {
      Finish(ToGrpc(status));
      return;
    }
    if (known_already_) {
      if (rules_.done) rules_.done(sha256_);
      Finish(grpc::Status::OK);
      return;
    }
    chunk_.Clear();
    StartRead(&chunk_);
  }
  void OnDone() override { delete this; }

 private:
  Status Take() {
    if (upload_ == nullptr) {
      sha256_ = chunk_.sha256();
      if ((!rules_.may_skip || rules_.may_skip(sha256_)) && blobs_->Claim(sha256_)) {
        known_already_ = true;
        return absl::OkStatus();
      }
      if (rules_.may_come) LH_RETURN_IF_ERROR(rules_.may_come(sha256_, chunk_.total_bytes()));
      LH_ASSIGN_OR_RETURN(upload_, blobs_->StartUpload(chunk_.sha256(), chunk_.total_bytes()));
    }
    return upload_->Append(chunk_.data());
  }

  // After the last chunk, or when the caller is gone: then bytes are missing, and Finish refuses.
  void End() {
    if (upload_ == nullptr) {
      Finish(ToGrpc(absl::InvalidArgumentError(
          "an upload needs at least one chunk, with the blob's hash and size")));
      return;
    }
    // Not before Finish is the reactor's life over.
    threads_->Add(
        fmt::format("upload {}", static_cast<const void*>(this)),
        [this] {
          const Status status = std::exchange(upload_, nullptr)->Finish();
          if (status.ok() && rules_.done) rules_.done(sha256_);
          Finish(ToGrpc(status));
        },
        [this] {
          Finish(ToGrpc(absl::UnavailableError(
              "the coordinator is shutting down; try again when it is back")));
        });
  }

  const BlobStore* const blobs_;
  WorkThreads* const threads_;
  const UploadRules rules_;
  std::string sha256_;  // from the first chunk
  v1::UploadChunk chunk_;
  std::unique_ptr<BlobUpload> upload_;
  bool known_already_ = false;
};

}  // namespace

grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs, WorkThreads* threads,
                                                      UploadRules rules) {
  return new UploadReactor(blobs, threads, std::move(rules));
}

}  // namespace longhaul::coordinator
