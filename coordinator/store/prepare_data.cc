#include "coordinator/store/prepare_data.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "run/plan/proto/plan_proto.h"
#include "run/tokens/token_file.h"

namespace longhaul::coordinator {
namespace {

// Grows when the token file's format does.
constexpr int kCacheVersion = 1;

// What was made before, if it is still there. An unreadable entry is as good as none.
std::optional<DataSet> FromCache(const std::string& path, const BlobStore& blobs) {
  const StatusOr<std::string> bytes = ReadFile(path, 64 << 10);
  v1::DataSet data;
  if (!bytes.ok() || !data.ParseFromString(*bytes) || !blobs.Has(data.token_file_sha256())) {
    return std::nullopt;
  }
  return FromProto(data);
}

}  // namespace

StatusOr<DataPreparer> DataPreparer::Open(const std::string& cache_folder, const BlobStore* blobs) {
  LH_RETURN_IF_ERROR(MakeDirectories(cache_folder));
  return DataPreparer(cache_folder, blobs);
}

std::string DataPreparer::KeyOf(const command::PrepareData& request) const {
  Sha256 hash;
  hash.Update(
      fmt::format("{}\n{}\n{:.17g}\n", kCacheVersion, request.tokenizer, request.validation_share));
  for (const v1::DataFile& file : request.files) hash.Update(file.sha256() + "\n");
  return hash.HexDigest();
}

StatusOr<DataSet> DataPreparer::Prepare(const command::PrepareData& request) const {
  const std::string cache_path = fmt::format("{}/{}", cache_folder_, KeyOf(request));
  if (std::optional<DataSet> known = FromCache(cache_path, *blobs_)) return *known;

  std::vector<std::string> paths;
  uint64_t text_bytes = 0;
  for (const v1::DataFile& file : request.files) {
    if (!blobs_->Has(file.sha256())) {
      return absl::FailedPreconditionError(
          fmt::format("data file {} ({}) is not in the coordinator's store; submit the run again",
                      file.name(), file.sha256()));
    }
    paths.push_back(blobs_->PathOf(file.sha256()));
    text_bytes += file.bytes();
  }
  const std::string temporary = blobs_->TemporaryPath();
  const StatusOr<TokenFileInfo> info =
      WriteTokenFile(paths, request.tokenizer, request.validation_share, temporary);
  if (!info.ok()) {
    ::unlink(temporary.c_str());
    return Annotate(info.status(), "preparing the data");
  }
  LH_ASSIGN_OR_RETURN(const std::string sha256, blobs_->Adopt(temporary));

  const DataSet data{.token_file_sha256 = sha256,
                     .tokens = info->tokens,
                     .validation_tokens = info->validation_tokens,
                     .vocabulary = info->vocabulary,
                     .tokenizer = info->tokenizer,
                     .text_bytes = text_bytes};
  const std::string cached = ToProto(data).SerializeAsString();
  if (const Status status = WriteFileAtomic(cache_path, cached); !status.ok()) {
    LogWarning("the token file is made, but not remembered: {}", Message(status));
  }
  return data;
}

}  // namespace longhaul::coordinator
