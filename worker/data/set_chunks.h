// Gets the chunks of a mixture of data sets. The chunks of a set on a web server come from that
// server only. Other chunks come from the first source that has them: the set's folder on this
// machine, other workers that read the same data, the coordinator. Fetched chunks stay in memory
// for a while, for this worker and for others.
//
// Thread-safe.
#pragma once

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

// Returns true once the chunk is no longer wanted. Polled while a chunk is fetched.
using ChunkGivenUp = std::function<bool()>;

// Interface to other workers that read the same data. Thread-safe.
class OtherReaders {
 public:
  struct Found {
    std::vector<std::byte> bytes;  // has the requested hash
    std::string holder;            // "stage 0"
  };
  virtual ~OtherReaders() = default;
  // Fetches the chunk from another worker. `bytes` and `sha256`: its length and hash. Blocks for a
  // bounded time. An error means that no worker gave the chunk.
  virtual StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                                const ChunkGivenUp& given_up) = 0;
};

// The number of chunks and bytes that came from one source.
struct ChunkTally {
  uint64_t chunks = 0, bytes = 0;
  friend bool operator==(const ChunkTally&, const ChunkTally&) = default;
};

// Fetches a chunk of `file` and verifies its SHA-256. `chunk`: the chunk's index in the file. Must
// return soon after `given_up` is true. Several threads call it at once.
using FetchChunk = std::function<StatusOr<std::vector<std::byte>>(
    const data::Source& source, const data::HashedFile& file, uint64_t chunk,
    const ChunkGivenUp& given_up)>;

struct SetChunksOptions {
  std::shared_ptr<const data::Mixture> mixture;  // has passed CheckMixture
  uint64_t memory_bytes = 0;                     // limit of the chunks in memory
  // Reads the chunk from the set's folder, which is quick, or asks the set's web server.
  FetchChunk from_place;
  FetchChunk from_coordinator;
};

class SetChunks {
 public:
  explicit SetChunks(SetChunksOptions options);

  const std::shared_ptr<const data::Mixture>& mixture() const { return options_.mixture; }
  // Returns the file that contains the chunk; null: the mixture has no such chunk.
  const data::HashedFile* FileOf(const ChunkId& id) const;

  // As ChunkCache::Get and ChunkCache::Expect. The mixture must have the chunks.
  StatusOr<SharedChunk> Get(const ChunkId& id) { return cache_.Get(id); }
  void Expect(const std::vector<ChunkId>& ids) { cache_.Expect(ids); }

  // Returns a chunk for another worker, which may be hostile. kNotFound: the mixture has no such
  // chunk. A chunk of a set on a web server comes only from memory; kNotFound: it is not there.
  // Other chunks come from memory or the set's folder, and if `fetches` from all sources, as in
  // Get.
  StatusOr<SharedChunk> Give(const ChunkId& id, bool fetches, const ChunkGivenUp& given_up);

  // Sets the other workers that are asked from now on; null: none.
  void SetOthers(std::shared_ptr<OtherReaders> others);
  // Returns what came from each source since the last call. Keys: "its folder", "a web server",
  // "stage 0", "the coordinator".
  std::map<std::string, ChunkTally> TakeTally();

 private:
  using Bytes = std::vector<std::byte>;
  StatusOr<Bytes> Fetch(const ChunkId& id, const ChunkGivenUp& given_up);
  StatusOr<Bytes> Counted(const std::string& holder, StatusOr<Bytes> bytes);

  const SetChunksOptions options_;
  std::mutex mutex_;
  std::shared_ptr<OtherReaders> others_;
  std::map<std::string, ChunkTally> tally_;
  ChunkCache cache_;  // last member: its threads use the others
};

// A tally as text: "12 chunks (48 KiB) from stage 0, 3 chunks (12 KiB) from ...".
std::string ToString(const std::map<std::string, ChunkTally>& tally);

}  // namespace longhaul::worker
