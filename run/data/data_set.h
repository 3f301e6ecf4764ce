// Data sets: token shards with a manifest (docs/design/data_sets.md), and the mixture of data sets
// that a run is trained on. Every participant knows each shard's size and hashes and where its
// folder may be, and fetches the chunks whose tokens it needs. A chunk is a piece of a file with a
// hash of its own.
//
// Plain data, pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::data {

// A file, or a part of one, with the hashes of its chunks. All chunks but the last have the data
// set's chunk_bytes.
struct HashedFile {
  // Relative to the data set's folder, and inside it: names without "..".
  std::string file;
  uint64_t offset = 0, bytes = 0;
  std::string chunks;  // SHA-256 of each chunk in hexadecimal, concatenated
  uint64_t ChunkCount() const { return chunks.size() / 64; }
  std::string ChunkSha256(uint64_t chunk) const { return chunks.substr(chunk * 64, 64); }
  friend bool operator==(const HashedFile&, const HashedFile&) = default;
};

struct Shard {
  uint64_t tokens = 0;
  HashedFile ids;                  // token ids, DataSet::bytes_per_token each
  std::optional<HashedFile> mask;  // one bit a token; 1: its loss counts; nullopt: all losses count
  friend bool operator==(const Shard&, const Shard&) = default;
};

// The tokens of several shards, one after the other.
struct TokenList {
  std::vector<Shard> shards;
  uint64_t tokens() const;
  friend bool operator==(const TokenList&, const TokenList&) = default;
};

struct DataSet {
  std::string tokenizer;         // its name; empty: made from ready token files
  std::string tokenizer_sha256;  // of its tokenizer.json; empty: unknown
  uint32_t vocabulary = 0;
  uint32_t bytes_per_token = 2;
  std::optional<uint32_t> end_token;  // id that ends a document; nullopt: unknown
  uint64_t ends_inside = 0;           // number of end tokens that end no document
  // Number of training tokens whose loss counts; nullopt: unknown.
  std::optional<uint64_t> targets;
  // For a set of preferences: number of pairs of answers in its training tokens. nullopt: the set
  // has no pairs.
  std::optional<uint64_t> pairs;
  uint32_t packed = 0;  // context for which documents were packed; 0: not packed
  uint64_t chunk_bytes = 0;
  TokenList training, validation;

  bool has_masks() const;  // true if any shard has a mask
  friend bool operator==(const DataSet&, const DataSet&) = default;
};

// Checks that a file of a list is inside the data set's folder: a relative path without empty
// names, "." and "..". kInvalidArgument: it is not.
Status CheckInside(std::string_view file);

// Parses dataset.json, which may be hostile. kInvalidArgument names the fault.
StatusOr<DataSet> ParseDataSet(std::string_view json);

struct Source {
  // An absolute path, or a folder's address (base/remote/address.h); on a hub with the commit.
  std::string folder;
  double weight = 1;  // relative share of the sequences; above 0
  DataSet set;
  bool at_address() const {
    return !folder.starts_with('/') && folder.find("://") != std::string::npos;
  }
  friend bool operator==(const Source&, const Source&) = default;
};

// The data sets that a run reads: at least one source. All have one vocabulary, and all or none
// have masks.
struct Mixture {
  // Maximum number of sources of a run. Each source needs at least one sequence of the cycle of
  // 1,024 sequences in which sources take turns (sample_order.h).
  static constexpr size_t kMostSources = 1024;
  std::vector<Source> sources;

  // Both need at least one source.
  uint32_t vocabulary() const { return sources.front().set.vocabulary; }
  bool has_masks() const { return sources.front().set.has_masks(); }
  friend bool operator==(const Mixture&, const Mixture&) = default;
};

// Checks that a run can read these data sets together, with a context of `context` tokens. With
// `by_documents`, also checks that documents can be kept apart. kInvalidArgument has all reasons
// why not, a line each.
Status CheckMixture(const Mixture& mixture, uint32_t context, bool by_documents = false);

// Checks that all data sets are of preferences, or with `pairs` false that none is.
// kInvalidArgument has all reasons why not, a line each.
Status CheckPairs(const Mixture& mixture, bool pairs);

// The folder of each source, in order.
std::vector<std::string> FoldersOf(const Mixture& mixture);
// Checks that the list of a mixture is of the folders that a run file names, in the same order:
// whoever wrote the list must not lead its readers elsewhere. kInvalidArgument names the first
// folder that differs.
Status CheckFolders(const std::vector<std::string>& of_list,
                    const std::vector<std::string>& of_run_file);

// Equal mixtures have equal JSON. MixtureFromJson takes any text, also a hostile one, and returns
// kInvalidArgument if the text does not have ToJson's form; it does not call CheckMixture.
std::string ToJson(const Mixture& mixture);
StatusOr<Mixture> MixtureFromJson(std::string_view json);

}  // namespace longhaul::data
