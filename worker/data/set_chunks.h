// The chunks of a mixture of data sets, from whoever has them, in this order: the set's place (its
// folder on this machine, or its web server), other workers that read the same data, the
// coordinator. What was fetched stays in memory for a while, for this worker and for others.
//
// Thread-safe.
#ifndef LONGHAUL_WORKER_DATA_SET_CHUNKS_H_
#define LONGHAUL_WORKER_DATA_SET_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/data/data_set.h"
#include "worker/data/chunk_cache.h"

namespace longhaul::worker {

// Whether nobody wants a chunk any more.
using ChunkGivenUp = std::function<bool()>;

// Other workers that read the same data. Thread-safe.
class OtherReaders {
 public:
  struct Found {
    std::vector<std::byte> bytes;  // of the hash that was asked for
    std::string holder;            // "stage 0"
  };
  virtual ~OtherReaders() = default;
  // The chunk of so many bytes and that SHA-256. Blocks for a bounded time. Not OK: none of them
  // gave it.
  virtual StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                                const ChunkGivenUp& given_up) = 0;
};

// What came from one holder.
struct ChunkTally {
  uint64_t chunks = 0, bytes = 0;
  friend bool operator==(const ChunkTally&, const ChunkTally&) = default;
};

// The bytes of a chunk of `file`, whose SHA-256 they have. Blocks; ends soon after `given_up` says
// so. Called by several threads.
using FetchChunk = std::function<StatusOr<std::vector<std::byte>>(
    const data::Source& source, const data::HashedFile& file, uint64_t chunk,
    const ChunkGivenUp& given_up)>;

struct SetChunksOptions {
  std::shared_ptr<const data::Mixture> mixture;  // CheckMixture found nothing
  uint64_t memory_bytes = 0;
  // Of a folder it returns at once.
  FetchChunk from_place;
  FetchChunk from_coordinator;
};

class SetChunks {
 public:
  explicit SetChunks(SetChunksOptions options);

  const std::shared_ptr<const data::Mixture>& mixture() const { return options_.mixture; }
  // The file that `id` is a chunk of; null: the list has no such chunk.
  const data::HashedFile* FileOf(const ChunkId& id) const;

  // As ChunkCache's. `id` is of the list.
  StatusOr<SharedChunk> Get(const ChunkId& id) { return cache_.Get(id); }
  void Expect(const std::vector<ChunkId>& ids) { cache_.Expect(ids); }

  // For another worker, which may ask for anything: kNotFound where the list has no such chunk.
  // `fetches`: as Get. Else at once, out of memory or the folder.
  StatusOr<SharedChunk> Give(const ChunkId& id, bool fetches, const ChunkGivenUp& given_up);

  // Whom to ask from now on; null: nobody.
  void SetOthers(std::shared_ptr<OtherReaders> others);
  // What came from where since the last call: by "its folder", "a web server", "stage 0", "the
  // coordinator".
  std::map<std::string, ChunkTally> TakeTally();

 private:
  using Bytes = std::vector<std::byte>;
  StatusOr<Bytes> Fetch(const ChunkId& id, const ChunkGivenUp& given_up);
  StatusOr<Bytes> Counted(const std::string& holder, StatusOr<Bytes> bytes);

  const SetChunksOptions options_;
  std::mutex mutex_;
  std::shared_ptr<OtherReaders> others_;
  std::map<std::string, ChunkTally> tally_;
  ChunkCache cache_;  // last: its threads use the rest
};

// What TakeTally gave as text: "12 chunks (48 KiB) from stage 0, 3 chunks (12 KiB) from ...".
std::string ToString(const std::map<std::string, ChunkTally>& tally);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_DATA_SET_CHUNKS_H_
