// Any text as a list of blobs: read as a stream or refused. Where what builds a tree of it takes
// it, too, the stream has left no blob out that the tree names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include "base/fuzz/target.h"
#include "coordinator/store/list_names.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

LH_FUZZ_TARGET(list_names) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::istringstream json(text);
  const auto names = longhaul::coordinator::ReadListNames(json);
  if (!names.ok()) return false;
  if (names->blobs.size() % longhaul::coordinator::ListNames::kNameBytes != 0) std::abort();
  std::set<std::string> blobs;
  for (size_t i = 0; i < names->size(); ++i) {
    blobs.insert(absl::BytesToHexString(std::string(names->name(i))));
  }
  const auto expect = [&](const std::string& sha256) {
    if (!blobs.contains(sha256)) std::abort();
  };
  if (const auto mixture = longhaul::data::MixtureFromJson(text); mixture.ok()) {
    for (const auto& source : mixture->sources) {
      for (const auto* list : {&source.set.training, &source.set.validation}) {
        for (const auto& shard : list->shards) {
          if (source.at_address()) continue;
          for (uint64_t i = 0; i < shard.ids.ChunkCount(); ++i) expect(shard.ids.ChunkSha256(i));
          for (uint64_t i = 0; shard.mask && i < shard.mask->ChunkCount(); ++i) {
            expect(shard.mask->ChunkSha256(i));
          }
        }
      }
    }
  } else if (const auto weights = longhaul::published::FromJson(text); weights.ok()) {
    for (const auto& tensor : weights->tensors) {
      if (!weights->IsRemote(tensor)) expect(tensor.sha256);
    }
  }
  return true;
}
