#include "coordinator/store/blob_lists.h"

#include <algorithm>
#include <cstdint>

#include "base/file.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

namespace longhaul::coordinator {
namespace {

void AddChunks(const data::HashedFile& file, BlobLists::Names* names) {
  for (uint64_t chunk = 0; chunk < file.ChunkCount(); ++chunk) {
    names->insert(file.ChunkSha256(chunk));
  }
}

void AddSource(const data::Source& source, BlobLists::Names* names) {
  if (source.on_web()) return;
  for (const data::TokenList* list : {&source.set.training, &source.set.validation}) {
    for (const data::Shard& shard : list->shards) {
      AddChunks(shard.ids, names);
      if (shard.mask) AddChunks(*shard.mask, names);
    }
  }
}

StatusOr<BlobLists::Names> Read(const std::string& text) {
  BlobLists::Names names;
  if (const StatusOr<data::Mixture> mixture = data::MixtureFromJson(text); mixture.ok()) {
    for (const data::Source& source : mixture->sources) AddSource(source, &names);
    return names;
  }
  const StatusOr<published::Weights> weights = published::FromJson(text);
  if (!weights.ok()) {
    return absl::InvalidArgumentError("expected a list of data sets or of a model's weights");
  }
  for (const published::Tensor& tensor : weights->tensors) {
    if (!weights->IsRemote(tensor)) names.insert(tensor.sha256);
  }
  return names;
}

}  // namespace

StatusOr<std::shared_ptr<const BlobLists::Names>> BlobLists::NamedBy(const std::string& list) {
  // Held while a list is read, so that many who ask for the same one read it once.
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(kept_, list, [](const auto& one) { return one.first; });
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return known->second;
  }
  LH_RETURN_IF_ERROR(blobs_->OpenBlob(list).status());
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(blobs_->PathOf(list), kMostListBytes));
  LH_ASSIGN_OR_RETURN(Names names, Read(text));
  kept_.emplace_front(list, std::make_shared<const Names>(std::move(names)));
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

}  // namespace longhaul::coordinator
