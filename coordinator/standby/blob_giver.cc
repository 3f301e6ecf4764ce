#include "coordinator/standby/blob_giver.h"

#include "base/log.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

BlobGiver::BlobGiver(Store store, Lacks lacks)
    : store_(std::move(store)), lacks_(std::move(lacks)), thread_([this] { Run(); }) {}

BlobGiver::~BlobGiver() {
  End();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BlobGiver::Give(std::shared_ptr<v1::StandbyService::Stub> stub, ListedBlob blob) {
  {
    const std::lock_guard lock(mutex_);
    if (wanted_.size() >= kMostWaiting) return;
    wanted_.emplace_back(std::move(stub), std::move(blob));
  }
  changed_.notify_all();
}

void BlobGiver::End() {
  const std::lock_guard lock(mutex_);
  wanted_.clear();
  if (context_ != nullptr) context_->TryCancel();
}

void BlobGiver::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !wanted_.empty(); });
    if (closing_) return;
    const auto [stub, blob] = std::move(wanted_.front());
    wanted_.pop_front();
    grpc::ClientContext context;
    context_ = &context;
    lock.unlock();
    // A damaged copy would be refused there: it says so here first.
    Status status = store_(blob.folder).Check(blob.sha256);
    const bool has = status.ok();
    if (has) status = Send(blob, stub.get(), &context);
    if (!has) {
      lacks_(blob, status);
    } else if (status.ok()) {
      LogInfo("blob {} was damaged at the leader, and was sent to it", blob.sha256);
    } else {
      LogWarning("blob {} is damaged at the leader, and cannot be sent to it: {}", blob.sha256,
                 Message(status));
    }
    lock.lock();
    context_ = nullptr;
  }
}

Status BlobGiver::Send(const ListedBlob& blob, v1::StandbyService::Stub* stub,
                       grpc::ClientContext* context) {
  LH_ASSIGN_OR_RETURN(const BlobReader reader, store_(blob.folder).OpenBlob(blob.sha256));
  v1::CopyReply reply;
  const auto writer = stub->GiveCopy(context, &reply);
  v1::CopyChunk chunk;
  chunk.mutable_header()->set_folder(blob.folder);
  chunk.mutable_header()->set_sha256(blob.sha256);
  chunk.mutable_header()->set_bytes(reader.size());
  bool goes = writer->Write(chunk);
  for (uint64_t offset = 0; goes && offset < reader.size();) {
    StatusOr<std::string> bytes = reader.ReadAt(offset, kChunkBytes);
    if (!bytes.ok()) {
      context->TryCancel();
      (void)writer->Finish();
      return bytes.status();
    }
    offset += bytes->size();
    chunk.set_bytes(*std::move(bytes));
    goes = writer->Write(chunk);
  }
  writer->WritesDone();
  return FromGrpc(writer->Finish());
}

}  // namespace longhaul::coordinator
