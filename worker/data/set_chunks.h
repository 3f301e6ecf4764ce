// Gets the chunks of a mixture of data sets. The chunks of a set at an address come from its server
// only. For other chunks three places are tried in order: the set's folder on this machine, other
// workers that read the same data, the coordinator. Fetched chunks stay in a memory cache
// (chunk_cache.h), for this worker and for others.
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

// Returns true once the chunk is no longer wanted. Never null. Polled on the fetching thread.
using ChunkGivenUp = std::function<bool()>;

// Interface to other workers that read the same data. Thread-safe.
class OtherReaders {
 public:
  struct Found {
    std::vector<std::byte> bytes;  // has the requested hash
    std::string holder;            // the worker that gave the chunk, for people: "stage 0"
  };
  virtual ~OtherReaders() = default;
  // Fetches the chunk from another worker. `bytes`: the chunk's length. `sha256`: its hash, 64
  // hexadecimal digits. Blocks for a bounded time. Any error: no worker gave the chunk.
  virtual StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                                const ChunkGivenUp& given_up) = 0;
};

// The number of chunks and bytes that came from one source.
struct ChunkTally {
  uint64_t chunks = 0, bytes = 0;
  friend bool operator==(const ChunkTally&, const ChunkTally&) = default;
};

// Fetches a chunk of `file`, which belongs to `source`, and verifies its SHA-256. `chunk`: the
// chunk's index in the file. Must return soon after `given_up` is true; kCancelled then. Other
// errors: the chunk is not available. Several threads call it at once.
using FetchChunk = std::function<StatusOr<std::vector<std::byte>>(
    const data::Source& source, const data::HashedFile& file, uint64_t chunk,
    const ChunkGivenUp& given_up)>;

struct SetChunksOptions {
  std::shared_ptr<const data::Mixture> mixture;  // has passed CheckMixture
  uint64_t memory_bytes = 0;                     // limit of the cache
  // Fetches the chunk from the set's own place: its folder, or its server. Not null.
  FetchChunk from_place;
  FetchChunk from_coordinator;  // not null
};

class SetChunks {
 public:
  explicit SetChunks(SetChunksOptions options);

  const std::shared_ptr<const data::Mixture>& mixture() const { return options_.mixture; }
  // Returns the file that contains the chunk; null: the mixture has no such chunk. The mixture owns
  // the result.
  const data::HashedFile* FileOf(const ChunkId& id) const;

  // As ChunkCache::Get and ChunkCache::Expect. The mixture must have the chunks, else the process
  // ends. If all places fail, Get returns the error of the last one.
  StatusOr<SharedChunk> Get(const ChunkId& id) { return cache_.Get(id); }
  void Expect(const std::vector<ChunkId>& ids) { cache_.Expect(ids); }

  // Returns a chunk that another worker asks for; `id` may be hostile. Looks in the cache. Then,
  // unless the set is at an address, looks in the set's folder, or with `fetches` in all places as
  // Get does. kNotFound: the mixture has no such chunk, or the chunk is of a set at an address and
  // not in the cache. Other errors: those of the places.
  StatusOr<SharedChunk> Give(const ChunkId& id, bool fetches, const ChunkGivenUp& given_up);

  // Sets the other workers that are asked from now on; null: none.
  void SetOthers(std::shared_ptr<OtherReaders> others);
  // Returns what was fetched from each place since the last call, without chunks from the cache.
  // Keys: "its folder", "its server", Found::holder ("stage 0"), "the coordinator".
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
