// A list of one data set with one file, whose chunks are full of their own number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "run/data/data_set.h"

namespace longhaul::worker {

inline std::vector<std::byte> ChunkBytes(uint64_t chunk, uint64_t size = 4096) {
  return std::vector<std::byte>(size, std::byte(chunk));
}
inline std::string ChunkHash(uint64_t chunk, uint64_t size = 4096) {
  Sha256 hash;
  hash.Update(ChunkBytes(chunk, size));
  return hash.HexDigest();
}

inline std::shared_ptr<const data::Mixture> ListOfChunks(const std::string& folder, uint64_t chunks,
                                                         uint64_t size = 4096) {
  data::Shard shard{.tokens = chunks * size / 2,
                    .ids = {.file = "all.bin", .offset = 0, .bytes = chunks * size, .chunks = ""},
                    .mask = {}};
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) shard.ids.chunks += ChunkHash(chunk, size);
  data::Source source{.folder = folder, .weight = 1, .set = {}};
  source.set.vocabulary = 65536;
  source.set.chunk_bytes = size;
  source.set.training.shards = {shard};
  return std::make_shared<const data::Mixture>(data::Mixture{{source}});
}

}  // namespace longhaul::worker
