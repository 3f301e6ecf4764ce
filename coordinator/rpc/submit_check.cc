#include "coordinator/rpc/submit_check.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "codec/registry.h"
#include "coordinator/rpc/intake.h"

namespace longhaul::coordinator {
namespace {

// From now on no garbage collection takes the blob before the run that is submitted names it.
Status CheckBlob(const std::string& sha256, const BlobStore& blobs) {
  LH_RETURN_IF_ERROR(blobs.OpenBlob(sha256).status());
  if (blobs.Claim(sha256)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("the coordinator has no blob {} any more", sha256));
}

Status CheckDataFile(const v1::DataFile& file, const BlobStore& blobs) {
  LH_RETURN_IF_ERROR(CheckBlob(file.sha256(), blobs));
  LH_ASSIGN_OR_RETURN(const BlobReader blob, blobs.OpenBlob(file.sha256()));
  if (blob.size() != file.bytes()) {
    return absl::InvalidArgumentError(fmt::format(
        "its size is given as {} bytes, the coordinator has {} bytes", file.bytes(), blob.size()));
  }
  return absl::OkStatus();
}

StatusOr<RunSpec> Check(const v1::SubmitRequest& request, const BlobStore& blobs,
                        bool needs_weights) {
  LH_RETURN_IF_ERROR(AdmitSubmit(request));
  const std::vector<std::string> overrides(request.overrides().begin(), request.overrides().end());
  LH_ASSIGN_OR_RETURN(RunSpec spec,
                      ParseRunSpec(request.run_yaml(), request.file_name(), overrides,
                                   [](std::string_view text) { return codec::CheckCodec(text); }));
  uint64_t bytes = 0;
  std::string missing;
  for (const v1::DataFile& file : request.data_files()) {
    const Status status = CheckDataFile(file, blobs);
    if (!status.ok()) missing += fmt::format("\n{}: {}", file.name(), Message(status));
    bytes += file.bytes();
  }
  if (const WeightsSpec& weights = spec.weights; needs_weights && !weights.from.empty()) {
    if (weights.sha256.empty()) {
      return absl::InvalidArgumentError(
          "model.from: expected model.weights beside it, which `longhaul submit` fills in");
    }
    const Status status = CheckBlob(weights.sha256, blobs);
    if (!status.ok()) missing += fmt::format("\nthe list of weights: {}", Message(status));
  }
  if (const DataSpec& data = spec.data; !data.sets.empty()) {
    if (data.list_sha256.empty()) {
      return absl::InvalidArgumentError(
          "data.sets: expected data.list beside it, which `longhaul submit` fills in");
    }
    const Status status = CheckBlob(data.list_sha256, blobs);
    if (!status.ok()) missing += fmt::format("\nthe list of data sets: {}", Message(status));
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("data files have to be uploaded before the run is submitted:{}", missing));
  }
  if (!spec.data.sets.empty()) return spec;
  // A tokenizer makes at most one token of a byte; the real count is checked when it is known.
  LH_RETURN_IF_ERROR(CheckDataSize(spec, bytes));
  return spec;
}

}  // namespace

StatusOr<RunSpec> CheckSubmit(const v1::SubmitRequest& request, const BlobStore& blobs) {
  return Check(request, blobs, /*needs_weights=*/true);
}

StatusOr<RunSpec> CheckPlan(const v1::SubmitRequest& request, const BlobStore& blobs) {
  return Check(request, blobs, /*needs_weights=*/false);
}

}  // namespace longhaul::coordinator
