#include "worker/epoch/chunk_fetcher.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/http/http_file.h"
#include "base/log.h"

namespace longhaul::worker {
namespace {

using Bytes = std::vector<std::byte>;

// The coordinator, or a web server, may be away for a while.
constexpr absl::Duration kChunkLimit = absl::Minutes(5);
constexpr absl::Duration kRetryPause = absl::Seconds(2);

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

StatusOr<Bytes> FromAddress(const std::string& address, uint64_t offset, uint64_t bytes,
                            const std::string& sha256, const std::function<bool()>& given_up) {
  const Deadline deadline = Deadline::After(kChunkLimit);
  while (true) {
    StatusOr<Bytes> chunk = http::ReadRange(address, offset, bytes, given_up);
    if (chunk.ok()) {
      LH_RETURN_IF_ERROR(CheckHash(*chunk, sha256, address, offset));
      return chunk;
    }
    if (!absl::IsUnavailable(chunk.status()) || deadline.Expired()) return chunk;
    LogWarning("{}; trying again", Message(chunk.status()));
    for (int i = 0; i < 10 && !given_up(); ++i) absl::SleepFor(kRetryPause / 10);
    if (given_up()) return absl::CancelledError("the data are not wanted any more");
  }
}

StatusOr<Bytes> FromFolder(const std::string& path, uint64_t offset, uint64_t bytes,
                           const std::string& sha256) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot open {}", path);
  in.seekg(static_cast<std::streamoff>(offset));
  Bytes chunk(bytes);
  if (!in.read(reinterpret_cast<char*>(chunk.data()), static_cast<std::streamsize>(bytes))) {
    return DataLoss("{} is shorter than it was", path);
  }
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

FetchChunk FetchFromPlace() {
  return [](const data::Source& source, const data::HashedFile& file, uint64_t chunk,
            const ChunkGivenUp& given_up) -> StatusOr<Bytes> {
    const uint64_t offset = file.offset + chunk * source.set.chunk_bytes;
    const uint64_t bytes = BytesOf(source, file, chunk);
    const std::string sha256 = file.ChunkSha256(chunk);
    if (source.on_web()) {
      return FromAddress(http::AddressOf(source.folder, file.file), offset, bytes, sha256,
                         given_up);
    }
    const std::string path =
        file.file.starts_with('/') ? file.file : source.folder + "/" + file.file;
    return FromFolder(path, offset, bytes, sha256);
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
