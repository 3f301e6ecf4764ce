// Data sets: token shards with a manifest (docs/design/data_sets.md), and the mixture of some that
// a run is trained on. Of a mixture everybody knows each shard's size and hashes, and where its
// folder may be; whoever needs tokens fetches the chunks that have them.
//
// Plain data, pure functions; thread-safe.
#ifndef LONGHAUL_RUN_DATA_DATA_SET_H_
#define LONGHAUL_RUN_DATA_DATA_SET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::data {

// A file, or a part of one, that is known by the hashes of its chunks. All but the last chunk have
// the data set's chunk_bytes.
struct HashedFile {
  std::string file;  // in the data set's folder, or absolute
  uint64_t offset = 0, bytes = 0;
  std::string chunks;  // SHA-256 of each in hexadecimal, one after the other
  uint64_t ChunkCount() const { return chunks.size() / 64; }
  std::string ChunkSha256(uint64_t chunk) const { return chunks.substr(chunk * 64, 64); }
  friend bool operator==(const HashedFile&, const HashedFile&) = default;
};

struct Shard {
  uint64_t tokens = 0;
  HashedFile ids;
  std::optional<HashedFile> mask;  // a bit a token: whether its loss counts
  friend bool operator==(const Shard&, const Shard&) = default;
};

// Shards one after the other.
struct TokenList {
  std::vector<Shard> shards;
  uint64_t tokens() const;
  friend bool operator==(const TokenList&, const TokenList&) = default;
};

struct DataSet {
  std::string tokenizer;  // its name; empty: ready token files
  uint32_t vocabulary = 0;
  uint32_t bytes_per_token = 2;
  std::optional<uint32_t> end_token;
  uint32_t packed = 0;  // the context that documents were packed for; 0: they were not
  uint64_t chunk_bytes = 0;
  TokenList training, validation;

  bool has_masks() const;
  friend bool operator==(const DataSet&, const DataSet&) = default;
};

// dataset.json, which may be hostile. kInvalidArgument naming what is wrong with it.
StatusOr<DataSet> ParseDataSet(std::string_view json);

struct Source {
  std::string folder;  // absolute, or the beginning of an http(s) address
  double weight = 1;
  DataSet set;
  bool on_web() const { return folder.starts_with("http://") || folder.starts_with("https://"); }
  friend bool operator==(const Source&, const Source&) = default;
};

// What a run reads. At least one source; all of one vocabulary, with masks or without.
struct Mixture {
  std::vector<Source> sources;

  uint32_t vocabulary() const { return sources.front().set.vocabulary; }
  bool has_masks() const { return sources.front().set.has_masks(); }
  friend bool operator==(const Mixture&, const Mixture&) = default;
};

// All that keeps these from being read together, with this context, or by documents.
Status CheckMixture(const Mixture& mixture, uint32_t context, bool by_documents = false);

// As a text, which is the same for the same mixture. Foreign bytes: kInvalidArgument.
std::string ToJson(const Mixture& mixture);
StatusOr<Mixture> MixtureFromJson(std::string_view json);

}  // namespace longhaul::data

#endif  // LONGHAUL_RUN_DATA_DATA_SET_H_
