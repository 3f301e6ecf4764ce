// Content-addressed files in one folder, each under its SHA-256: data files that users uploaded and
// token files made of them; in another folder, copies of checkpoint shards. A blob appears whole
// and verified or not at all.
//
// Thread-safe, but for BlobUpload and BlobReader: one call at a time.
#ifndef LONGHAUL_COORDINATOR_STORE_BLOB_STORE_H_
#define LONGHAUL_COORDINATOR_STORE_BLOB_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/hash.h"
#include "base/status.h"

namespace longhaul::coordinator {

class BlobReader {
 public:
  BlobReader(BlobReader&& other) noexcept;
  BlobReader& operator=(BlobReader&& other) noexcept;
  ~BlobReader();
  uint64_t size() const { return size_; }
  // Up to `limit` bytes from `offset` on; empty at the end.
  StatusOr<std::string> ReadAt(uint64_t offset, size_t limit) const;
  // All of it, in pieces that overlap by so many bytes, so that nothing of that length lies across
  // a border; until `look` says false.
  Status LookThrough(size_t overlap, absl::FunctionRef<bool(std::string_view piece)> look) const;

 private:
  friend class BlobStore;
  BlobReader(int fd, uint64_t size) : fd_(fd), size_(size) {}
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Keeps a copy of a store's blobs. Thread-safe.
class BlobFollower {
 public:
  virtual ~BlobFollower() = default;
  // A blob has come. Returns when the follower has it, too, or when nobody waits for it any more.
  virtual void Added(const std::string& sha256, uint64_t bytes) = 0;
  // Returns at once.
  virtual void Removed(const std::string& sha256) = 0;
};

// Who follows a store, shared with its uploads. Thread-safe.
class FollowerOfBlobs {
 public:
  void Set(std::weak_ptr<BlobFollower> follower);
  std::shared_ptr<BlobFollower> Get() const;

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<BlobFollower> follower_;
};

// A blob on its way in. Dropped before Finish, it leaves nothing behind.
class BlobUpload {
 public:
  // Room on the disk that uploads under way were promised and have not filled, and how many they
  // are; shared by a store's uploads.
  struct Promised {
    std::atomic<uint64_t> bytes{0};
    std::atomic<size_t> uploads{0};
  };

  BlobUpload(const BlobUpload&) = delete;
  BlobUpload& operator=(const BlobUpload&) = delete;
  ~BlobUpload();
  // kInvalidArgument for more bytes than announced.
  Status Append(std::string_view bytes);
  // Checks size (kInvalidArgument) and hash (kDataLoss), syncs and renames. Once, last.
  Status Finish();

 private:
  friend class BlobStore;
  BlobUpload(std::string folder, std::string sha256, uint64_t total_bytes, std::string temporary,
             int fd, std::shared_ptr<Promised> promised,
             std::shared_ptr<const FollowerOfBlobs> follower);
  const std::string folder_, sha256_;
  const uint64_t total_bytes_;
  const std::string temporary_;
  int fd_;
  const std::shared_ptr<Promised> promised_;
  const std::shared_ptr<const FollowerOfBlobs> follower_;
  uint64_t written_ = 0;
  Sha256 hash_;
};

class BlobStore {
 public:
  // Makes the folder; removes what interrupted uploads left. The caller holds the state directory's
  // lock.
  static StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& folder);

  // Hears of every blob that comes and goes, as long as it lives; the one before no more.
  void SetFollower(std::weak_ptr<BlobFollower> follower) const {
    follower_->Set(std::move(follower));
  }

  bool Has(std::string_view sha256) const;
  // As Has, of somebody who counts on it: RemoveUnclaimed leaves it for a while.
  bool Claim(std::string_view sha256) const;
  // Deletes a blob that has neither come nor been claimed for `age`. False: it stays.
  StatusOr<bool> RemoveUnclaimed(std::string_view sha256, absl::Duration age) const;
  // Names, sizes and ages of all blobs; age: since it came or was claimed last.
  struct Entry {
    std::string sha256;
    uint64_t bytes = 0;
    absl::Duration age;
  };
  StatusOr<std::vector<Entry>> List() const;
  // Where the blob is or would be. `sha256` must be IsSha256Hex.
  std::string PathOf(std::string_view sha256) const;
  // Uploads at a time.
  static constexpr size_t kMaxUploads = 64;
  // Of the disk, for the coordinator's own records.
  static constexpr uint64_t kKeptFreeBytes = 16 << 20;
  // kInvalidArgument for something that is no hash, kResourceExhausted with too many uploads and
  // where the disk lacks room for this one beside those under way.
  StatusOr<std::unique_ptr<BlobUpload>> StartUpload(std::string_view sha256,
                                                    uint64_t total_bytes) const;
  // Hashes the blob. Not OK with what is wrong with it: kNotFound, kDataLoss, or why it cannot be
  // read. A damaged one is deleted here, so that it can be sent again; a follower keeps its own.
  Status Check(std::string_view sha256) const;
  // OK where there is none.
  Status Remove(std::string_view sha256) const;
  // kNotFound, kInvalidArgument.
  StatusOr<BlobReader> OpenBlob(std::string_view sha256) const;

  // A path in the folder for a file in the making, and taking it in (by rename) under its hash,
  // which is returned.
  std::string TemporaryPath() const;
  StatusOr<std::string> Adopt(const std::string& temporary) const;

 private:
  explicit BlobStore(std::string folder) : folder_(std::move(folder)) {}
  Status Unlink(std::string_view sha256) const;
  const std::string folder_;
  mutable std::mutex claims_;  // held to claim a blob, and to look at its age and delete it
  const std::shared_ptr<BlobUpload::Promised> promised_ = std::make_shared<BlobUpload::Promised>();
  const std::shared_ptr<FollowerOfBlobs> follower_ = std::make_shared<FollowerOfBlobs>();
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_BLOB_STORE_H_
