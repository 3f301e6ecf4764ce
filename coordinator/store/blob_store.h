// A folder of content-addressed files (blobs), each named by its SHA-256. The coordinator has two
// such stores: one for data files that users uploaded and for token files made from them, one for
// copies of checkpoint shards. A blob appears whole and verified or not at all.
//
// Thread-safe, except BlobUpload and BlobReader: one call at a time. Hashes are 64 lower-case
// hexadecimal digits. Besides the errors that are named, every Status may be the system's error for
// a file that cannot be read or written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator {

// An open blob. Stays readable after the blob is removed, and may outlive its store.
class BlobReader {
 public:
  uint64_t size() const { return size_; }
  // Reads up to `limit` bytes at `offset`; empty at or behind the end. kDataLoss: the file became
  // shorter.
  StatusOr<std::string> ReadAt(uint64_t offset, size_t limit) const;
  // Reads everything in pieces until `look` returns false, which is no error. Pieces overlap by
  // `overlap` bytes, so that a string of that length is never split.
  Status LookThrough(size_t overlap, absl::FunctionRef<bool(std::string_view piece)> look) const;

 private:
  friend class BlobStore;
  BlobReader(UniqueFd fd, uint64_t size) : fd_(std::move(fd)), size_(size) {}
  UniqueFd fd_;
  uint64_t size_;
};

// Hears of a store's blobs, to keep a copy of them. Thread-safe.
class BlobFollower {
 public:
  virtual ~BlobFollower() = default;
  // A blob was added. May wait some seconds for a copy of a small one, and for no large one.
  virtual void Added(const std::string& sha256, uint64_t bytes) = 0;
  // A blob was removed. Returns at once.
  virtual void Removed(const std::string& sha256) = 0;
  // A blob was damaged, and so it is here no longer; a copy of it is wanted. Returns at once.
  virtual void Damaged(const std::string& /*sha256*/) {}
};

// Holds the current follower of a store; the store and its uploads share this holder. Thread-safe.
class FollowerOfBlobs {
 public:
  void Set(std::weak_ptr<BlobFollower> follower);
  std::shared_ptr<BlobFollower> Get() const;

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<BlobFollower> follower_;
};

// A blob that is being received. If destroyed before Finish, it leaves nothing. May outlive its
// store. After an error, destroy it.
class BlobUpload {
 public:
  // Disk space reserved for current uploads and not yet filled, and their number. Shared by a
  // store's uploads.
  struct Promised {
    std::atomic<uint64_t> bytes{0};
    std::atomic<size_t> uploads{0};
  };

  BlobUpload(const BlobUpload&) = delete;
  BlobUpload& operator=(const BlobUpload&) = delete;
  ~BlobUpload();
  // kInvalidArgument: more bytes than announced.
  Status Append(std::string_view bytes);
  // Checks size (kInvalidArgument) and hash (kDataLoss), syncs and renames, and tells the follower,
  // if there is one. The last call; call it once.
  Status Finish();

 private:
  friend class BlobStore;
  BlobUpload(std::string folder, std::string sha256, uint64_t total_bytes, std::string temporary,
             UniqueFd fd, std::shared_ptr<Promised> promised,
             std::shared_ptr<const FollowerOfBlobs> follower);
  const std::string folder_, sha256_;
  const uint64_t total_bytes_;
  const std::string temporary_;
  UniqueFd fd_;  // set until the blob has its final name
  const std::shared_ptr<Promised> promised_;
  const std::shared_ptr<const FollowerOfBlobs> follower_;
  uint64_t written_ = 0;
  Sha256 hash_;
};

class BlobStore {
 public:
  // Creates the folder if needed, and removes leftovers of interrupted uploads. The caller holds
  // the state directory's lock.
  static StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& folder);

  // `follower` gets every addition and removal of a blob, and replaces the previous follower. Once
  // it is destroyed, there is no follower.
  void SetFollower(std::weak_ptr<BlobFollower> follower) const {
    follower_->Set(std::move(follower));
  }

  bool Has(std::string_view sha256) const;
  // As Has, for a caller that relies on the blob. The blob's age for RemoveUnclaimed begins anew.
  bool Claim(std::string_view sha256) const;
  // Deletes a blob that was neither added nor claimed within `age`. False: the blob is younger, or
  // there is none. kInvalidArgument: not a hash.
  StatusOr<bool> RemoveUnclaimed(std::string_view sha256, absl::Duration age) const;
  // Name, size and age of every blob; the age counts from its arrival or last claim.
  struct Entry {
    std::string sha256;
    uint64_t bytes = 0;
    absl::Duration age;
  };
  StatusOr<std::vector<Entry>> List() const;
  // Path of the blob, present or not. `sha256` must be IsSha256Hex.
  std::string PathOf(std::string_view sha256) const;
  // Calls `removed` with each blob that is deleted, on the thread that deletes it. Call this before
  // other threads use the store. `removed` must not delete blobs.
  void WhenRemoved(std::function<void(const std::string& sha256)> removed) {
    removed_ = std::move(removed);
  }
  // Maximum number of concurrent uploads.
  static constexpr size_t kMaxUploads = 64;
  // kResourceExhausted: the disk has no room for so many bytes besides the current uploads and
  // kKeptFreeBytes; the message says what to do.
  Status HasRoomFor(uint64_t bytes) const;
  // kInvalidArgument: not a hash. kResourceExhausted: too many uploads, or not enough disk space
  // for this one besides the current ones.
  StatusOr<std::unique_ptr<BlobUpload>> StartUpload(std::string_view sha256,
                                                    uint64_t total_bytes) const;
  // Reads the whole blob and compares its hash. kNotFound: no such blob. kDataLoss: the contents
  // have another hash; the blob is deleted here, so that it can be sent again, and a follower,
  // which keeps its own copy, is told (Damaged). kUnavailable: the folder is missing.
  Status Check(std::string_view sha256) const;
  // Deletes a blob. OK if there is no such blob. kInvalidArgument: not a hash.
  Status Remove(std::string_view sha256) const;
  // kNotFound: no such blob. kInvalidArgument: not a hash.
  StatusOr<BlobReader> OpenBlob(std::string_view sha256) const;

  // TemporaryPath returns the path of a file that does not exist yet, in the folder. Adopt renames
  // such a finished file to its hash, and returns the hash.
  std::string TemporaryPath() const;
  StatusOr<std::string> Adopt(const std::string& temporary) const;

 private:
  explicit BlobStore(std::string folder) : folder_(std::move(folder)) {}
  Status Unlink(std::string_view sha256) const;
  const std::string folder_;
  std::function<void(const std::string& sha256)> removed_;
  mutable std::mutex claims_;  // held to claim a blob, and to check its age and delete it
  const std::shared_ptr<BlobUpload::Promised> promised_ = std::make_shared<BlobUpload::Promised>();
  const std::shared_ptr<FollowerOfBlobs> follower_ = std::make_shared<FollowerOfBlobs>();
};

}  // namespace longhaul::coordinator
