#include "coordinator/rpc/submit_check.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "coordinator/rpc/intake.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

namespace longhaul::coordinator {
namespace {

// As BlobStore::OpenBlob says it of one that is not there.
Status NotHere(const std::string& sha256) {
  return NotFound("the coordinator has no blob {}", sha256);
}

// From now on no garbage collection takes the blob before the run that is submitted names it.
Status CheckBlob(const std::string& sha256, const BlobStore& blobs, const Nameable& nameable) {
  if (!nameable.all && IsSha256Hex(sha256) && !nameable.own(sha256)) return NotHere(sha256);
  LH_RETURN_IF_ERROR(blobs.OpenBlob(sha256).status());
  if (blobs.Claim(sha256)) return absl::OkStatus();
  return NotFound("the coordinator has no blob {} any more", sha256);
}

Status CheckDataFile(const v1::DataFile& file, const BlobStore& blobs, const Nameable& nameable) {
  LH_RETURN_IF_ERROR(CheckBlob(file.sha256(), blobs, nameable));
  LH_ASSIGN_OR_RETURN(const BlobReader blob, blobs.OpenBlob(file.sha256()));
  if (blob.size() != file.bytes()) {
    return InvalidArgument("its size is given as {} bytes, the coordinator has {} bytes",
                           file.bytes(), blob.size());
  }
  return absl::OkStatus();
}

// A list, and what it names where the coordinator is to have that. Of a list that somebody wrote
// himself the hashes may be another's.
StatusOr<ListNames> CheckList(const std::string& sha256, bool uploaded, const BlobStore& blobs,
                              const Nameable& nameable) {
  LH_RETURN_IF_ERROR(CheckBlob(sha256, blobs, nameable));
  LH_ASSIGN_OR_RETURN(ListNames names, nameable.lists.Read(sha256));
  for (size_t i = 0; !nameable.all && uploaded && i < names.size(); ++i) {
    const std::string name = absl::BytesToHexString(std::string(names.name(i)));
    if (!nameable.own(name)) return NotHere(name);
  }
  // From here on questions about it are answered by the index.
  LH_RETURN_IF_ERROR(nameable.lists.Add(sha256, names));
  return names;
}

StatusOr<RunSpec> Check(const v1::SubmitRequest& request, const BlobStore& blobs,
                        const Nameable& nameable, bool needs_weights) {
  LH_RETURN_IF_ERROR(AdmitSubmit(request));
  const std::vector<std::string> overrides(request.overrides().begin(), request.overrides().end());
  LH_ASSIGN_OR_RETURN(RunSpec spec,
                      ParseRunSpec(request.run_yaml(), request.file_name(), overrides));
  if (spec.train.epochs && spec.train.steps == kMostSteps) {
    return absl::InvalidArgumentError(
        "train.epochs: expected train.steps beside it, which `longhaul submit` fills in");
  }
  uint64_t bytes = 0;
  std::string missing;
  for (const v1::DataFile& file : request.data_files()) {
    const Status status = CheckDataFile(file, blobs, nameable);
    if (!status.ok()) missing += fmt::format("\n{}: {}", file.name(), Message(status));
    bytes += file.bytes();
  }
  if (const WeightsSpec& weights = spec.weights; needs_weights && !weights.from.empty()) {
    if (weights.sha256.empty()) {
      return absl::InvalidArgumentError(
          "model.from: expected model.weights beside it, which `longhaul submit` fills in");
    }
    const StatusOr<ListNames> list = CheckList(weights.sha256, weights.upload, blobs, nameable);
    if (!list.ok()) {
      missing += fmt::format("\nthe list of weights: {}", Message(list.status()));
    } else {
      const std::vector<std::string>& at = list->folders;
      LH_RETURN_IF_ERROR(published::CheckPlace(at.empty() ? "" : at.front(), weights.from));
    }
  }
  if (const DataSpec& texts = spec.data; !texts.sets.empty()) {
    if (texts.list_sha256.empty()) {
      return absl::InvalidArgumentError(
          "data.sets: expected data.list beside it, which `longhaul submit` fills in");
    }
    const StatusOr<ListNames> list = CheckList(texts.list_sha256, texts.upload, blobs, nameable);
    if (!list.ok()) {
      missing += fmt::format("\nthe list of data sets: {}", Message(list.status()));
    } else {
      LH_RETURN_IF_ERROR(data::CheckFolders(list->folders, texts.Folders()));
    }
  }
  if (const SamplesSpec& samples = spec.samples; samples.every > 0 && !spec.data.sets.empty()) {
    if (samples.ids.empty()) {
      return absl::InvalidArgumentError(
          "samples.prompts: expected samples.ids beside it, which `longhaul submit` fills in");
    }
    if (!samples.pieces_sha256.empty()) {
      const Status status = CheckBlob(samples.pieces_sha256, blobs, nameable);
      if (!status.ok()) missing += fmt::format("\nthe table of tokens: {}", Message(status));
    }
  }
  if (!missing.empty()) {
    return FailedPrecondition("data files have to be uploaded before the run is submitted:{}",
                              missing);
  }
  if (!spec.data.sets.empty()) return spec;
  // A tokenizer makes at most one token of a byte; the real count is checked when it is known.
  LH_RETURN_IF_ERROR(CheckDataSize(spec, bytes));
  return spec;
}

}  // namespace

StatusOr<RunSpec> CheckSubmit(const v1::SubmitRequest& request, const BlobStore& blobs,
                              const Nameable& nameable) {
  return Check(request, blobs, nameable, /*needs_weights=*/true);
}

StatusOr<RunSpec> CheckPlan(const v1::SubmitRequest& request, const BlobStore& blobs,
                            const Nameable& nameable) {
  return Check(request, blobs, nameable, /*needs_weights=*/false);
}

}  // namespace longhaul::coordinator
