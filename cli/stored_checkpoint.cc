#include "cli/stored_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/model_source.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::cli {
namespace {

// The last part of a folder's address: "step-00000050".
std::string_view LastPart(std::string_view address) {
  while (address.ends_with('/')) address.remove_suffix(1);
  return address.substr(address.rfind('/') + 1);
}

// The newest step below a run's folder whose checkpoint is whole.
std::optional<uint64_t> NewestIn(const remote::Listing& listing) {
  std::optional<uint64_t> newest;
  for (const remote::Entry& entry : listing.entries) {
    const size_t slash = entry.path.find('/');
    if (slash == std::string::npos || entry.path.substr(slash + 1) != stored::kDescription) {
      continue;
    }
    const std::optional<uint64_t> step = stored::StepOf(entry.path.substr(0, slash));
    if (step) newest = std::max(newest.value_or(0), *step);
  }
  return newest;
}

Status NoneIn(const std::string& address) {
  return NotFound(
      "there is no whole checkpoint in {}; expected the folder of a run or of one of its "
      "checkpoints, such as s3://bucket/checkpoints/RUN or s3://bucket/checkpoints/RUN/step-50",
      address);
}

}  // namespace

StatusOr<FoundCheckpoint> FindStoredCheckpoint(const std::string& address) {
  LH_ASSIGN_OR_RETURN(remote::Address folder, remote::ParseAddress(address));
  if (folder.kind != remote::Kind::kS3 && folder.kind != remote::Kind::kGoogle) {
    return InvalidArgument(
        "--from-checkpoint: expected an address that begins with s3:// or gs://, "
        "got {}",
        remote::ShownAddress(folder));
  }
  if (!folder.IsFolder()) folder.path += '/';
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<remote::Store> store, OpenStore(folder));
  std::string of_run = remote::ToString(folder);
  std::optional<uint64_t> step = stored::StepOf(LastPart(of_run));
  if (step) {
    of_run.resize(of_run.rfind('/', of_run.size() - 2) + 1);
  } else {
    LH_ASSIGN_OR_RETURN(const remote::Listing listing, store->List(folder));
    step = NewestIn(listing);
    if (!step) return NoneIn(of_run);
  }
  FoundCheckpoint found;
  found.folder = stored::FolderOfStep(of_run, *step);
  LH_ASSIGN_OR_RETURN(const remote::Address of_step, remote::ParseAddress(found.folder));
  LH_ASSIGN_OR_RETURN(const remote::Address object, remote::Inside(of_step, stored::kDescription));
  const StatusOr<std::string> json = store->ReadAll(object, stored::kMostDescriptionBytes);
  if (absl::IsNotFound(json.status())) return NoneIn(found.folder);
  LH_RETURN_IF_ERROR(json.status());
  StatusOr<v1::StoredCheckpoint> checkpoint = stored::FromJson(*json);
  if (!checkpoint.ok()) return Annotate(checkpoint.status(), remote::ToString(object));
  found.checkpoint = *std::move(checkpoint);
  if (found.checkpoint.manifest().step() != *step) {
    return DataLoss("{}: expected the checkpoint of step {}, it is of step {}",
                    remote::ToString(object), *step, found.checkpoint.manifest().step());
  }
  return found;
}

}  // namespace longhaul::cli
