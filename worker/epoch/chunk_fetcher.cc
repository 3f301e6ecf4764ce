#include "worker/epoch/chunk_fetcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/remote/address.h"
#include "base/root_folders.h"
#include "worker/epoch/remote_objects.h"

namespace longhaul::worker {
namespace {

using Bytes = std::vector<std::byte>;

// The coordinator, or a set's server, may be away for a while.
constexpr absl::Duration kChunkLimit = absl::Minutes(5);

uint64_t BytesOf(const data::Source& source, const data::HashedFile& file, uint64_t chunk) {
  const uint64_t size = source.set.chunk_bytes;
  return std::min(size, file.bytes - chunk * size);
}

Status CheckHash(const Bytes& chunk, const std::string& sha256, const std::string& path,
                 uint64_t offset) {
  Sha256 hash;
  hash.Update(chunk);
  if (hash.HexDigest() == sha256) return absl::OkStatus();
  return DataLoss("{} has changed since the run was submitted, {} bytes from byte {} on", path,
                  chunk.size(), offset);
}

// Reads chunks of sets at addresses. Hashes say whether a chunk is the right one, so the version of
// a file is only what keeps a range from being of two versions.
class AddressReader {
 public:
  explicit AddressReader(std::shared_ptr<const remote::Store> store) : store_(std::move(store)) {}

  StatusOr<Bytes> Read(const data::Source& source, const data::HashedFile& file, uint64_t chunk,
                       const ChunkGivenUp& given_up) {
    StatusOr<Bytes> bytes = Find(source, file, chunk, given_up);
    if (bytes.ok() || absl::IsCancelled(bytes.status())) return bytes;
    return Status(bytes.status().code(),
                  fmt::format("{}{}", Message(bytes.status()), AdviceOnAddresses(bytes.status())));
  }

 private:
  StatusOr<Bytes> Find(const data::Source& source, const data::HashedFile& file, uint64_t chunk,
                       const ChunkGivenUp& given_up) {
    if (store_ == nullptr) {
      return FailedPrecondition("the data set is at an address, and this worker reads none");
    }
    LH_ASSIGN_OR_RETURN(const remote::Address folder, FolderOf(source));
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(folder, file.file));
    const http::Call call{.deadline = Deadline::After(kChunkLimit), .given_up = given_up};
    Bytes bytes(BytesOf(source, file, chunk));
    const uint64_t offset = file.offset + chunk * source.set.chunk_bytes;
    // Servers get other versions of a file, too, which may have the same bytes.
    for (int attempt = 1;; ++attempt) {
      LH_ASSIGN_OR_RETURN(const remote::Version version, VersionOf(address, call));
      if (offset > version.bytes || bytes.size() > version.bytes - offset) {
        Forget(address);
        return DataLoss("{} has changed since the run was submitted: it has {} bytes",
                        remote::ShownAddress(address), version.bytes);
      }
      const Status status = store_->ReadInto(address, version, offset, bytes, call);
      if (status.ok()) break;
      Forget(address);
      if (!absl::IsAborted(status)) return status;
      if (attempt == 2) return DataLoss("{}", Message(status));
    }
    LH_RETURN_IF_ERROR(
        CheckHash(bytes, file.ChunkSha256(chunk), remote::ShownAddress(address), offset));
    return bytes;
  }

  static StatusOr<remote::Address> FolderOf(const data::Source& source) {
    LH_ASSIGN_OR_RETURN(remote::Address folder, remote::ParseAddress(source.folder));
    if (!folder.IsFolder()) folder.path += '/';
    return folder;
  }

  StatusOr<remote::Version> VersionOf(const remote::Address& file, const http::Call& call) {
    const std::string name = remote::ToString(file);
    {
      const std::lock_guard lock(mutex_);
      const auto known = versions_.find(name);
      if (known != versions_.end()) return known->second;
    }
    LH_ASSIGN_OR_RETURN(remote::Version version, store_->Look(file, call));
    const std::lock_guard lock(mutex_);
    return versions_[name] = std::move(version);
  }

  void Forget(const remote::Address& file) {
    const std::lock_guard lock(mutex_);
    versions_.erase(remote::ToString(file));
  }

  const std::shared_ptr<const remote::Store> store_;
  std::mutex mutex_;
  std::map<std::string, remote::Version> versions_;  // of the files that were looked at
};

StatusOr<Bytes> FromFolder(const RootFolders* roots, const std::string& path, uint64_t offset,
                           uint64_t bytes, const std::string& sha256) {
  static const RootFolders kNone;
  const StatusOr<FileBeneath> file = (roots == nullptr ? kNone : *roots).OpenFile(path);
  if (!file.ok()) return Annotate(file.status(), path);
  Bytes chunk(bytes);
  if (!file->Read(offset, chunk).ok()) return DataLoss("{} is shorter than it was", path);
  LH_RETURN_IF_ERROR(CheckHash(chunk, sha256, path, offset));
  return chunk;
}

StatusOr<Bytes> FromCoordinator(BlobFetcher& blobs, const std::string& sha256, uint64_t bytes,
                                const std::function<bool()>& given_up) {
  LH_ASSIGN_OR_RETURN(const std::string path,
                      blobs.Fetch(sha256, Deadline::After(kChunkLimit), given_up));
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, bytes));
  blobs.Forget(sha256);
  if (text.size() != bytes) {
    return DataLoss("expected {} bytes, the coordinator has {}", bytes, text.size());
  }
  const auto whole = std::as_bytes(std::span(text));
  return Bytes(whole.begin(), whole.end());
}

}  // namespace

FetchChunk FetchFromPlace(const RootFolders* roots, std::shared_ptr<const remote::Store> objects) {
  const auto addresses = std::make_shared<AddressReader>(std::move(objects));
  return [roots, addresses](const data::Source& source, const data::HashedFile& file,
                            uint64_t chunk, const ChunkGivenUp& given_up) -> StatusOr<Bytes> {
    if (source.at_address()) return addresses->Read(source, file, chunk, given_up);
    return FromFolder(roots, source.folder + "/" + file.file,
                      file.offset + chunk * source.set.chunk_bytes, BytesOf(source, file, chunk),
                      file.ChunkSha256(chunk));
  };
}

FetchChunk FetchFromCoordinator(BlobFetcher* blobs) {
  // Chunks of the same content have one name there.
  const auto turn = std::make_shared<std::mutex>();
  return [blobs, turn](const data::Source& source, const data::HashedFile& file, uint64_t chunk,
                       const ChunkGivenUp& given_up) -> StatusOr<Bytes> {
    const std::lock_guard lock(*turn);
    return FromCoordinator(*blobs, file.ChunkSha256(chunk), BytesOf(source, file, chunk), given_up);
  };
}

}  // namespace longhaul::worker
