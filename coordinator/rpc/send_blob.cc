#include "coordinator/rpc/send_blob.h"

#include <fmt/core.h>

#include <atomic>
#include <string>
#include <utility>

#include "coordinator/rpc/finish_now.h"
#include "proto/rpc/channel.h"

namespace longhaul::coordinator {
namespace {

// Sends a blob from an offset on, a chunk at a time; at least one, which says how long the blob is.
class BlobWriter : public grpc::ServerWriteReactor<v1::BlobChunk> {
 public:
  BlobWriter(Place place, BlobReader reader, uint64_t offset)
      : place_(std::move(place)), reader_(std::move(reader)), offset_(offset) {
    WriteNext();
  }
  void OnCancel() override { cancelled_ = true; }
  void OnWriteDone(bool ok) override {
    if (!ok || cancelled_) {
      Finish(grpc::Status::CANCELLED);
    } else if (offset_ < reader_.size()) {
      WriteNext();
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    StatusOr<std::string> bytes = reader_.ReadAt(offset_, kChunkBytes);
    if (!bytes.ok()) {
      Finish(ToGrpc(bytes.status()));
      return;
    }
    offset_ += bytes->size();
    chunk_.set_data(*std::move(bytes));
    chunk_.set_total_bytes(reader_.size());
    StartWrite(&chunk_);
  }

  const Place place_;
  const BlobReader reader_;
  uint64_t offset_;
  v1::BlobChunk chunk_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

grpc::ServerWriteReactor<v1::BlobChunk>* SendBlob(const BlobStore* blobs, const BlobStore* copies,
                                                  const v1::FetchBlobRequest& request,
                                                  Place place) {
  using Reactor = grpc::ServerWriteReactor<v1::BlobChunk>;
  StatusOr<BlobReader> reader = (blobs != nullptr ? blobs : copies)->OpenBlob(request.sha256());
  if (blobs != nullptr && copies != nullptr && absl::IsNotFound(reader.status())) {
    reader = copies->OpenBlob(request.sha256());
  }
  if (!reader.ok()) return FinishNow<Reactor>(reader.status());
  if (request.offset() > reader->size()) {
    return FinishNow<Reactor>(absl::OutOfRangeError(
        fmt::format("blob {} has {} bytes, asked for from offset {} on; drop what was fetched and "
                    "begin at 0",
                    request.sha256(), reader->size(), request.offset())));
  }
  return new BlobWriter(std::move(place), *std::move(reader), request.offset());
}

}  // namespace longhaul::coordinator
