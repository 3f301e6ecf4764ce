#include "worker/epoch/blob_fetcher.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "proto/rpc/status.h"

namespace longhaul::worker {
namespace {

// After a coordinator that did not serve, before the next try.
constexpr absl::Duration kFetchPause = absl::Milliseconds(200);

// Checks a chunk that comes at `offset`: it must lie within the announced size, and the disk must
// have room for the rest.
Status CheckChunk(const v1::BlobChunk& chunk, uint64_t offset, const std::string& folder) {
  if (offset > chunk.total_bytes() || chunk.data().size() > chunk.total_bytes() - offset) {
    return InvalidArgument("expected data of {} bytes, and more came", chunk.total_bytes());
  }
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (!error && space.available < chunk.total_bytes() - offset) {
    return ResourceExhausted("the data needs {} more, the disk has {} left in {}; make room there",
                             FormatBytes(static_cast<double>(chunk.total_bytes() - offset)),
                             FormatBytes(static_cast<double>(space.available)), folder);
  }
  return absl::OkStatus();
}

}  // namespace

BlobFetcher::BlobFetcher(std::shared_ptr<Access> access, std::string folder)
    : stub_(std::move(access)), folder_(std::move(folder)) {}

StatusOr<std::string> BlobFetcher::Fetch(const std::string& sha256, Deadline deadline,
                                         const std::function<bool()>& cancelled) {
  if (!IsSha256Hex(sha256)) {
    return absl::InvalidArgumentError("expected a SHA-256 of 64 hexadecimal digits as address");
  }
  LH_RETURN_IF_ERROR(MakeDirectories(folder_));
  const std::string path = fmt::format("{}/{}", folder_, sha256);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  // A file that was begun before is continued at its end.
  const std::string part = path + ".part";
  Status status;
  do {
    if (cancelled()) return absl::CancelledError("the transfer was given up");
    status = FetchRest(sha256, part, deadline, cancelled);
    if (!absl::IsUnavailable(status)) break;
    stub_.DoesNotServe();
    absl::SleepFor(std::min(kFetchPause, deadline.Remaining()));
  } while (!deadline.Expired());
  LH_RETURN_IF_ERROR(status);
  LH_ASSIGN_OR_RETURN(const std::string hash, Sha256HexOfFile(part));
  if (hash != sha256) {
    std::filesystem::remove(part, error);
    return DataLoss("expected data with SHA-256 {}, got {}; it will be fetched anew", sha256, hash);
  }
  // Synced before it gets its name: whoever sees the name takes the contents as checked.
  LH_RETURN_IF_ERROR(SyncPath(part));
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    return FromErrno(fmt::format("cannot rename to {}", path), errno);
  }
  return path;
}

void BlobFetcher::Forget(const std::string& sha256) {
  std::error_code ignored;  // It costs room only.
  if (IsSha256Hex(sha256)) std::filesystem::remove(fmt::format("{}/{}", folder_, sha256), ignored);
}

void BlobFetcher::ForgetAll() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Status BlobFetcher::FetchRest(const std::string& sha256, const std::string& part, Deadline deadline,
                              const std::function<bool()>& cancelled) {
  std::ofstream file(part, std::ios::binary | std::ios::app);
  if (!file) return FromErrno(fmt::format("cannot write {}", part), errno);
  file.seekp(0, std::ios::end);
  v1::FetchBlobRequest request;
  request.set_sha256(sha256);
  request.set_offset(static_cast<uint64_t>(file.tellp()));
  grpc::ClientContext context;
  stub_.access().Prepare(&context);
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(deadline.Remaining()));
  const auto stub = stub_.Get();
  const auto reader = stub->FetchBlob(&context, request);
  uint64_t bytes = request.offset();
  Status refused;
  v1::BlobChunk chunk;
  while (reader->Read(&chunk)) {
    refused = CheckChunk(chunk, bytes, folder_);
    if (!refused.ok()) {
      context.TryCancel();
      break;
    }
    bytes += chunk.data().size();
    file.write(chunk.data().data(), static_cast<std::streamsize>(chunk.data().size()));
    if (!file || cancelled()) {
      context.TryCancel();
      break;
    }
  }
  file.close();
  LH_RETURN_IF_ERROR(refused);
  if (!file) return ResourceExhausted("cannot write {}; is the disk full?", part);
  if (cancelled()) return absl::CancelledError("the transfer was given up");
  return FromGrpc(reader->Finish(), "fetching data from the coordinator");
}

}  // namespace longhaul::worker
