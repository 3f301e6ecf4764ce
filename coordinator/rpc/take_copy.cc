#include "coordinator/rpc/take_copy.h"

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

class CopyReader : public grpc::ServerReadReactor<v1::CopyChunk> {
 public:
  CopyReader(const BlobStore* blobs, const BlobStore* copies, Shell* shell, Place place)
      : blobs_(blobs), copies_(copies), shell_(shell), place_(std::move(place)) {
    StartSendInitialMetadata();
    StartRead(&chunk_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    const Status status = Take();
    if (!status.ok() || here_) {
      upload_.reset();
      Finish(ToGrpc(status));
      return;
    }
    chunk_.Clear();
    StartRead(&chunk_);
  }
  void OnDone() override { delete this; }

 private:
  Status Take() {
    switch (chunk_.body_case()) {
      case v1::CopyChunk::kHeader: {
        const v1::CopyChunk::Header& header = chunk_.header();
        if (upload_ != nullptr || !v1::BlobFolder_IsValid(header.folder())) break;
        const BlobStore* const to = header.folder() == v1::BLOB_FOLDER_DATA ? blobs_ : copies_;
        sha256_ = header.sha256();
        here_ = to->Has(sha256_);
        if (here_) return absl::OkStatus();
        LH_ASSIGN_OR_RETURN(upload_, to->StartUpload(sha256_, header.bytes()));
        return absl::OkStatus();
      }
      case v1::CopyChunk::kBytes:
        if (upload_ == nullptr) break;
        return upload_->Append(chunk_.bytes());
      case v1::CopyChunk::BODY_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        "expected the name of a blob and then its bytes; are both of the same version?");
  }

  // After the last chunk, or when the sender is gone: then bytes are missing, and Finish refuses.
  void End() {
    if (upload_ == nullptr) {
      return Finish(ToGrpc(absl::InvalidArgumentError("no copy of a blob came")));
    }
    shell_->upload_threads().Add(
        fmt::format("copy {}", static_cast<const void*>(this)),
        [this] {
          const Status status = std::exchange(upload_, nullptr)->Finish();
          if (status.ok()) LogInfo("blob {} is whole again: the standby had a copy", sha256_);
          Finish(ToGrpc(status));
        },
        [this] { Finish(ToGrpc(absl::UnavailableError("the coordinator is shutting down"))); });
  }

  const BlobStore* const blobs_;
  const BlobStore* const copies_;
  Shell* const shell_;
  const Place place_;
  v1::CopyChunk chunk_;  // belongs to gRPC during a read
  std::string sha256_;
  bool here_ = false;
  std::unique_ptr<BlobUpload> upload_;
};

}  // namespace

grpc::ServerReadReactor<v1::CopyChunk>* TakeCopy(const BlobStore* blobs, const BlobStore* copies,
                                                 Shell* shell, Place place) {
  return new CopyReader(blobs, copies, shell, std::move(place));
}

}  // namespace longhaul::coordinator
