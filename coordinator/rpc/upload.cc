#include "coordinator/rpc/upload.h"

#include <fmt/core.h>

#include <memory>
#include <mutex>
#include <utility>

#include "coordinator/rpc/upload_pace.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kLookAgain = absl::Seconds(1);

// Keeps itself alive until gRPC is done with it. One read at a time; the timer may end the upload
// between two of them, or during one.
class UploadReactor : public grpc::ServerReadReactor<v1::UploadChunk> {
 public:
  static UploadReactor* Start(const BlobStore* blobs, Shell* shell, UploadRules rules) {
    // Not make_shared: the constructor is private.
    std::shared_ptr<UploadReactor> upload(new UploadReactor(blobs, shell, std::move(rules)));
    UploadReactor* raw = upload.get();
    raw->self_ = upload;
    // Says that the caller is let in: before, its connection may say little (guarded_port.h).
    raw->StartSendInitialMetadata();
    raw->StartRead(&raw->chunk_);
    Watch(upload, shell->limits().idle_upload);
    return raw;
  }

  void OnReadDone(bool ok) override {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    if (!ok) return EndLocked(&lock);
    if (const Status status = TakeLocked(); !status.ok()) return FinishLocked(status);
    if (known_already_) {
      ended_ = true;
      lock.unlock();
      if (rules_.done) rules_.done(sha256_, bytes_);
      Finish(grpc::Status::OK);
      return;
    }
    pace_.Came(chunk_.data().size(), Now());
    chunk_.Clear();
    StartRead(&chunk_);
  }
  void OnDone() override { self_.reset(); }

 private:
  UploadReactor(const BlobStore* blobs, Shell* shell, UploadRules rules)
      : blobs_(blobs),
        shell_(shell),
        rules_(std::move(rules)),
        pace_(Now(), shell->limits().idle_upload) {}

  // Looks after `delay` whether the upload has become too slow.
  static void Watch(const std::shared_ptr<UploadReactor>& upload, absl::Duration delay) {
    upload->shell_->CallAfter(delay, [weak = std::weak_ptr(upload)] {
      const std::shared_ptr<UploadReactor> late = weak.lock();
      if (late == nullptr) return;
      absl::Duration left = kLookAgain;
      {
        // The loop does not wait for a disk: whoever holds the lock has just got some bytes.
        const std::unique_lock lock(late->mutex_, std::try_to_lock);
        if (lock && late->ended_) return;
        if (lock) left = late->pace_.ends() - Now();
        if (left <= absl::ZeroDuration()) return late->GiveUpLocked();
      }
      Watch(late, left);
    });
  }

  void GiveUpLocked() {
    const absl::Duration idle = shell_->limits().idle_upload;
    FinishLocked(DeadlineExceeded(
        "the upload is given up: fewer than {} bytes of it came within {} s; send it again",
        kLeastUploadBytes, absl::ToInt64Seconds(idle)));
  }

  Status TakeLocked() {
    if (upload_ == nullptr) {
      sha256_ = chunk_.sha256();
      bytes_ = chunk_.total_bytes();
      if ((!rules_.may_skip || rules_.may_skip(sha256_)) && blobs_->Claim(sha256_)) {
        known_already_ = true;
        return absl::OkStatus();
      }
      if (rules_.may_come) LH_RETURN_IF_ERROR(rules_.may_come(sha256_, bytes_));
      LH_ASSIGN_OR_RETURN(upload_, blobs_->StartUpload(sha256_, bytes_));
    }
    return upload_->Append(chunk_.data());
  }

  void FinishLocked(const Status& status) {
    ended_ = true;
    upload_.reset();  // its bytes go at once
    Finish(ToGrpc(status));
  }

  // After the last chunk, or when the caller is gone: then bytes are missing, and Finish refuses.
  void EndLocked(std::unique_lock<std::mutex>* lock) {
    if (upload_ == nullptr) {
      return FinishLocked(absl::InvalidArgumentError(
          "an upload needs at least one chunk, with the blob's hash and size"));
    }
    ended_ = true;
    lock->unlock();
    // Not before Finish is the reactor's life over.
    shell_->upload_threads().Add(
        fmt::format("upload {}", static_cast<const void*>(this)),
        [this] {
          const Status status = std::exchange(upload_, nullptr)->Finish();
          if (status.ok() && rules_.done) rules_.done(sha256_, bytes_);
          Finish(ToGrpc(status));
        },
        [this] {
          Finish(ToGrpc(absl::UnavailableError(
              "the coordinator is shutting down; try again when it is back")));
        });
  }

  const BlobStore* const blobs_;
  Shell* const shell_;
  const UploadRules rules_;
  std::shared_ptr<UploadReactor> self_;

  std::mutex mutex_;  // guards the members below
  UploadPace pace_;
  std::string sha256_;  // both: from the first chunk
  uint64_t bytes_ = 0;
  v1::UploadChunk chunk_;  // belongs to gRPC during a read
  std::unique_ptr<BlobUpload> upload_;
  bool known_already_ = false;
  bool ended_ = false;  // Finish was called, or will be by a thread that syncs
};

}  // namespace

grpc::ServerReadReactor<v1::UploadChunk>* StartUpload(const BlobStore* blobs, Shell* shell,
                                                      UploadRules rules) {
  return UploadReactor::Start(blobs, shell, std::move(rules));
}

}  // namespace longhaul::coordinator
