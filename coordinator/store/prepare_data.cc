#include "coordinator/store/prepare_data.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "coordinator/store/blob_lists.h"
#include "run/data/data_set.h"
#include "run/data/sample_order.h"
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
  if (!bytes.ok() || !data.ParseFromString(*bytes) || !blobs.Claim(data.token_file_sha256())) {
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
  if (!request.list_sha256.empty()) return request.list_sha256;
  Sha256 hash;
  hash.Update(
      fmt::format("{}\n{}\n{:.17g}\n", kCacheVersion, request.tokenizer, request.validation_share));
  for (const v1::DataFile& file : request.files) hash.Update(file.sha256() + "\n");
  return hash.HexDigest();
}

StatusOr<DataSet> DataPreparer::PrepareSets(const command::PrepareData& request) const {
  if (!blobs_->Has(request.list_sha256)) {
    return absl::FailedPreconditionError(
        "the list of the data sets is not in the coordinator's store; submit the run again");
  }
  // What comes from a user is looked at as a stream before a tree is built of it.
  LH_RETURN_IF_ERROR(BlobLists::Read(*blobs_, request.list_sha256).status());
  LH_ASSIGN_OR_RETURN(const std::string json,
                      ReadFile(blobs_->PathOf(request.list_sha256), 2 * kMostListBytes));
  LH_ASSIGN_OR_RETURN(const data::Mixture mixture, data::MixtureFromJson(json));
  LH_RETURN_IF_ERROR(data::CheckMixture(mixture, request.context));
  uint64_t training = 0, validation = 0;  // windows
  for (const data::SourceWindows& source :
       data::WindowsOfSources(mixture, request.context, request.validation_share)) {
    training += source.training;
    validation += source.validation;
  }
  // The tokens that so many windows have.
  const auto tokens_of = [&](uint64_t windows) {
    return windows == 0 ? 0 : windows * request.context + 1;
  };
  return DataSet{.token_file_sha256 = request.list_sha256,
                 .tokens = tokens_of(training) + tokens_of(validation),
                 .validation_tokens = tokens_of(validation),
                 .vocabulary = mixture.vocabulary(),
                 .tokenizer = mixture.sources.front().set.tokenizer,
                 .text_bytes = 0};
}

StatusOr<DataSet> DataPreparer::Prepare(const command::PrepareData& request) const {
  if (!request.list_sha256.empty()) return PrepareSets(request);
  const std::string cache_path = fmt::format("{}/{}", cache_folder_, KeyOf(request));
  if (std::optional<DataSet> known = FromCache(cache_path, *blobs_)) return *known;

  std::vector<std::string> paths;
  uint64_t text_bytes = 0;
  for (const v1::DataFile& file : request.files) {
    if (!blobs_->Has(file.sha256())) {
      return FailedPrecondition(
          "data file {} ({}) is not in the coordinator's store; submit the run again", file.name(),
          file.sha256());
    }
    paths.push_back(blobs_->PathOf(file.sha256()));
    text_bytes += file.bytes();
  }
  // Most tokens have two bytes, and none has less than a byte of text.
  LH_RETURN_IF_ERROR(Annotate(blobs_->HasRoomFor(2 * text_bytes), "preparing the data"));
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
