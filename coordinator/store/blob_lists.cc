#include "coordinator/store/blob_lists.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/file.h"
#include "base/remote/address.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

namespace longhaul::coordinator {
namespace {

// A name that is none names nothing.
void AddObject(const std::string& folder, std::string_view file, BlobLists::Names* objects) {
  const StatusOr<remote::Address> at = remote::ParseAddress(folder);
  if (!at.ok()) return;
  const StatusOr<remote::Address> object = remote::Inside(*at, file);
  if (object.ok()) objects->insert(remote::ToString(*object));
}

void AddFile(const data::Source& source, const data::HashedFile& file, BlobLists::Names* blobs,
             BlobLists::Names* objects) {
  if (source.at_address()) {
    AddObject(source.folder, file.file, objects);
    return;
  }
  for (uint64_t chunk = 0; chunk < file.ChunkCount(); ++chunk) {
    blobs->insert(file.ChunkSha256(chunk));
  }
}

Status Parse(const std::string& text, BlobLists::Names* blobs, BlobLists::Names* objects) {
  if (const StatusOr<data::Mixture> mixture = data::MixtureFromJson(text); mixture.ok()) {
    for (const data::Source& source : mixture->sources) {
      for (const data::TokenList* list : {&source.set.training, &source.set.validation}) {
        for (const data::Shard& shard : list->shards) {
          AddFile(source, shard.ids, blobs, objects);
          if (shard.mask) AddFile(source, *shard.mask, blobs, objects);
        }
      }
    }
    return absl::OkStatus();
  }
  const StatusOr<published::Weights> weights = published::FromJson(text);
  if (!weights.ok()) {
    return absl::InvalidArgumentError("expected a list of data sets or of a model's weights");
  }
  for (const published::Tensor& tensor : weights->tensors) {
    if (!weights->IsRemote(tensor)) blobs->insert(tensor.sha256);
  }
  for (const published::FileVersion& file : weights->versions) {
    AddObject(weights->from, file.name, objects);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const BlobLists::List>> BlobLists::Read(const std::string& list) {
  // Held while a list is read, so that many who ask for the same one read it once.
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(kept_, list, [](const auto& one) { return one.first; });
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return known->second;
  }
  LH_RETURN_IF_ERROR(blobs_->OpenBlob(list).status());
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(blobs_->PathOf(list), kMostListBytes));
  List read;
  LH_RETURN_IF_ERROR(Parse(text, &read.blobs, &read.objects));
  kept_.emplace_front(list, std::make_shared<const List>(std::move(read)));
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

StatusOr<std::shared_ptr<const BlobLists::Names>> BlobLists::NamedBy(const std::string& list) {
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<const List> read, Read(list));
  return std::shared_ptr<const Names>(read, &read->blobs);
}

StatusOr<std::shared_ptr<const BlobLists::Names>> BlobLists::ObjectsNamedBy(
    const std::string& list) {
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<const List> read, Read(list));
  return std::shared_ptr<const Names>(read, &read->objects);
}

}  // namespace longhaul::coordinator
