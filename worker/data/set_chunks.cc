#include "worker/data/set_chunks.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace longhaul::worker {

SetChunks::SetChunks(SetChunksOptions options)
    : options_(std::move(options)),
      cache_(options_.memory_bytes, [this](const ChunkId& id, const ChunkGivenUp& given_up) {
        return Fetch(id, given_up);
      }) {}

const data::HashedFile* SetChunks::FileOf(const ChunkId& id) const {
  const std::vector<data::Source>& sources = options_.mixture->sources;
  if (id.source >= sources.size()) return nullptr;
  const data::DataSet& set = sources[id.source].set;
  const data::TokenList& list = id.text == Text::kTraining ? set.training : set.validation;
  if (id.shard >= list.shards.size()) return nullptr;
  const data::Shard& shard = list.shards[id.shard];
  if (id.mask && !shard.mask) return nullptr;
  const data::HashedFile& file = id.mask ? *shard.mask : shard.ids;
  return id.chunk < file.ChunkCount() ? &file : nullptr;
}

StatusOr<SetChunks::Bytes> SetChunks::Counted(const std::string& holder, StatusOr<Bytes> bytes) {
  if (!bytes.ok()) return bytes;
  const std::lock_guard lock(mutex_);
  ChunkTally& tally = tally_[holder];
  ++tally.chunks;
  tally.bytes += bytes->size();
  return bytes;
}

StatusOr<SetChunks::Bytes> SetChunks::Fetch(const ChunkId& id, const ChunkGivenUp& given_up) {
  const data::HashedFile* file = FileOf(id);
  LH_CHECK(file != nullptr, "a window reads chunk {} of shard {}, which is not in the list",
           id.chunk, id.shard);
  const data::Source& source = options_.mixture->sources[id.source];
  StatusOr<Bytes> here = options_.from_place(source, *file, id.chunk, given_up);
  // What comes from a server is no load for links between workers.
  if (here.ok() || source.at_address()) {
    return Counted(source.at_address() ? "its server" : "its folder", std::move(here));
  }
  std::shared_ptr<OtherReaders> others;
  {
    const std::lock_guard lock(mutex_);
    others = others_;
  }
  if (others) {
    const uint64_t size = source.set.chunk_bytes;
    StatusOr<OtherReaders::Found> found = others->Fetch(
        id, std::min(size, file->bytes - id.chunk * size), file->ChunkSha256(id.chunk), given_up);
    if (found.ok()) return Counted(found->holder, std::move(found->bytes));
    if (given_up()) return absl::CancelledError("the data are not wanted any more");
  }
  StatusOr<Bytes> fetched = options_.from_coordinator(source, *file, id.chunk, given_up);
  if (fetched.ok() || absl::IsCancelled(fetched.status())) {
    return Counted("the coordinator", std::move(fetched));
  }
  return Status(
      fetched.status().code(),
      fmt::format("neither this worker nor the coordinator{} has what is needed of the data set in "
                  "{} ({}; {}); with data.upload: true `longhaul submit` sends it",
                  others ? " nor another worker of the run" : "", source.folder,
                  Message(here.status()), Message(fetched.status())));
}

StatusOr<SharedChunk> SetChunks::Give(const ChunkId& id, bool fetches,
                                      const ChunkGivenUp& given_up) {
  const data::HashedFile* file = FileOf(id);
  if (file == nullptr) return absl::NotFoundError("the list has no such chunk");
  const data::Source& source = options_.mixture->sources[id.source];
  if (SharedChunk chunk = cache_.Find(id)) return chunk;
  // Whoever reads asks the server, too.
  if (source.at_address()) return absl::NotFoundError("it is not in memory");
  if (fetches) return cache_.Get(id, given_up);
  LH_ASSIGN_OR_RETURN(Bytes bytes, options_.from_place(source, *file, id.chunk, given_up));
  return std::make_shared<const Bytes>(std::move(bytes));
}

void SetChunks::SetOthers(std::shared_ptr<OtherReaders> others) {
  const std::lock_guard lock(mutex_);
  others_.swap(others);  // the old ones end without the lock
}

std::map<std::string, ChunkTally> SetChunks::TakeTally() {
  const std::lock_guard lock(mutex_);
  return std::exchange(tally_, {});
}

std::string ToString(const std::map<std::string, ChunkTally>& tally) {
  std::string text;
  for (const auto& [holder, one] : tally) {
    text += fmt::format("{}{} {} ({}) from {}", text.empty() ? "" : ", ", one.chunks,
                        one.chunks == 1 ? "chunk" : "chunks",
                        FormatBytes(static_cast<double>(one.bytes)), holder);
  }
  return text;
}

}  // namespace longhaul::worker
