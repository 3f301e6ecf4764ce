#include "worker/epoch/weights_reader.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "worker/epoch/remote_objects.h"

namespace longhaul::worker {
namespace {

constexpr uint64_t kMostWeightsListBytes = 256 << 20;

}  // namespace

WeightsReader::WeightsReader(const RunSpec& spec, const RootFolders* roots, BlobFetcher* blobs,
                             Deadline deadline, std::function<bool()> cancelled)
    : model_(spec.model),
      folder_(spec.weights.from),
      adapters_folder_(spec.weights.adapters),
      roots_(roots),
      blobs_(blobs),
      deadline_(deadline),
      cancelled_(std::move(cancelled)) {}

StatusOr<WeightsReader> WeightsReader::Open(const RunSpec& spec, const RootFolders* roots,
                                            BlobFetcher* blobs,
                                            std::shared_ptr<const remote::Store> objects,
                                            Deadline deadline, std::function<bool()> cancelled) {
  WeightsReader reader(spec, roots, blobs, deadline, std::move(cancelled));
  const StatusOr<std::string> path = blobs->Fetch(spec.weights.sha256, deadline, reader.cancelled_);
  if (!path.ok()) return Annotate(path.status(), "the list of weights");
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(*path, kMostWeightsListBytes));
  blobs->Forget(spec.weights.sha256);
  LH_ASSIGN_OR_RETURN(reader.weights_, published::FromJson(json));
  LH_RETURN_IF_ERROR(published::CheckPlace(reader.weights_.from, spec.weights.from));
  LH_ASSIGN_OR_RETURN(const published::RanksOfModel ranks,
                      published::RanksIn(reader.weights_.config_json));
  const GroupSpec& group = spec.group;
  const bool same = ranks.have_own_channels()
                        ? ranks == published::RanksOfModel{group.tensor, group.shared_channels}
                        : group.shared_channels == 1;
  if (!same) {
    return InvalidArgument(
        "the weights are of {} ranks with group.p {}, and the run has {} with group.p {}; expected "
        "the same",
        ranks.count, ranks.shared_channels, group.tensor, group.shared_channels);
  }
  if (reader.weights_.from.empty()) return reader;
  if (objects == nullptr) {
    return FailedPrecondition("the model is at an address, and this worker reads none");
  }
  reader.objects_ = std::move(objects);
  LH_ASSIGN_OR_RETURN(reader.remote_,
                      published::RemoteTensors::Open(*reader.objects_, reader.weights_));
  return reader;
}

StatusOr<std::vector<std::byte>> WeightsReader::FromAddress(const published::Tensor& tensor) {
  StatusOr<std::vector<std::byte>> bytes =
      remote_->Read(tensor, {.deadline = deadline_, .given_up = cancelled_});
  if (bytes.ok()) {
    bytes_from_address_ += tensor.bytes;
    return bytes;
  }
  if (absl::IsCancelled(bytes.status())) return bytes;
  return Status(bytes.status().code(),
                fmt::format("'{}' of the weights: {}{}", tensor.name, Message(bytes.status()),
                            AdviceOnAddresses(bytes.status())));
}

StatusOr<std::vector<std::byte>> WeightsReader::FromFolder(const published::Tensor& tensor) const {
  static const RootFolders kNone;
  const std::string path = fmt::format(
      "{}/{}", published::IsOfAdapter(tensor) ? adapters_folder_ : folder_, tensor.file);
  const StatusOr<FileBeneath> file = (roots_ == nullptr ? kNone : *roots_).OpenFile(path);
  if (!file.ok()) return Annotate(file.status(), path);
  const auto changed = [&] {
    return DataLoss("'{}' in {} is not what the run began with", tensor.name, path);
  };
  // Before there is memory for what a foreign list promises.
  if (tensor.offset > file->bytes() || tensor.bytes > file->bytes() - tensor.offset) {
    return changed();
  }
  std::vector<std::byte> bytes(tensor.bytes);
  if (!file->Read(tensor.offset, bytes).ok()) return changed();
  Sha256 hash;
  hash.Update(bytes);
  if (hash.HexDigest() != tensor.sha256) return changed();
  return bytes;
}

StatusOr<std::vector<std::byte>> WeightsReader::BytesOf(const published::Tensor& tensor) {
  if (weights_.IsRemote(tensor)) return FromAddress(tensor);
  StatusOr<std::vector<std::byte>> bytes = FromFolder(tensor);
  if (bytes.ok()) {
    bytes_from_folder_ += tensor.bytes;
    return bytes;
  }
  const StatusOr<std::string> path = blobs_->Fetch(tensor.sha256, deadline_, cancelled_);
  if (!path.ok()) {
    if (absl::IsCancelled(path.status())) return path.status();
    return Status(
        path.status().code(),
        fmt::format("neither this worker's folder nor the coordinator has '{}' of the weights "
                    "({}; {}); with model.upload: true `longhaul submit` sends them",
                    tensor.name, Message(bytes.status()), Message(path.status())));
  }
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, tensor.bytes));
  blobs_->Forget(tensor.sha256);
  if (text.size() != tensor.bytes) {
    return DataLoss("expected {} bytes of '{}', the coordinator has {}", tensor.bytes, tensor.name,
                    text.size());
  }
  bytes_fetched_ += tensor.bytes;
  const auto whole = std::as_bytes(std::span(text));
  return std::vector<std::byte>(whole.begin(), whole.end());
}

Status WeightsReader::Read(const model::PlacedParameter& parameter, std::span<float> values) {
  if (cancelled_()) return absl::CancelledError("nobody wants the weights any more");
  LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                      published::TensorOf(weights_, model_, parameter));
  if (tensor->name != last_name_) {
    LH_ASSIGN_OR_RETURN(last_bytes_, BytesOf(*tensor));
    last_name_ = tensor->name;
  }
  published::Decode(*tensor, last_bytes_, parameter.parameter, values);
  return absl::OkStatus();
}

}  // namespace longhaul::worker
