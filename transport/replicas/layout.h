// Cuts a stage's parameters into buckets, which are exchanged one by one, and each bucket into one
// shard for each data-parallel replica. A shard's owner gets the mean of its gradients and steps
// its parameters. Every replica computes the same layout from the same parameters.
//
// Buckets take parameters in the given order. A parameter is cut where a bucket is full, and within
// a bucket into one piece for each replica, at multiples of kUnit elements. Smaller remainders go
// to the replica that owns least so far. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/replicas/options.h"

namespace longhaul::replicas {

// A multiple of the groups of 4-bit differences and gradients, and of the blocks of sketches and
// transforms.
inline constexpr uint64_t kUnit = 2048;
inline constexpr uint64_t kMostBucketElements = uint64_t{1} << 28;

struct ReplicatedParameter {
  std::string name;
  uint64_t elements = 0;
  bool may_be_sparse = false;  // tagc may send most of its gradients in later steps
  bool whole = false;          // needs a single owner: its optimizer needs the whole matrix
};

// Consecutive elements of a parameter with one owner.
struct Piece {
  uint32_t parameter = 0;
  uint64_t first = 0, count = 0;
  // Index of the piece's first element among its shard's dense, or sparse, pieces. Each piece
  // begins at a multiple of 64. Stochastic rounding and bitmaps use this index.
  uint64_t at = 0;
};
struct Shard {
  std::vector<Piece> dense, sparse;
  uint64_t positions = 0;  // elements of the sparse pieces, gaps between them included
  bool empty() const { return dense.empty() && sparse.empty(); }
  // Dense pieces first.
  std::vector<Piece> pieces() const;
};
struct Bucket {
  std::vector<Shard> shards;         // by owner
  std::vector<uint32_t> parameters;  // indices of parameters that have a piece in it
};

struct LayoutOptions {
  uint32_t replicas = 1;
  GradientOptions gradients;
  ParameterForm parameters = ParameterForm::kFp32;
  uint64_t bucket_elements = uint64_t{1} << 22;
};

class Layout {
 public:
  // kInvalidArgument: no or too many replicas, a duplicate name, an empty parameter, or a parameter
  // that must be whole and does not fit a bucket.
  static StatusOr<Layout> Make(std::vector<ReplicatedParameter> parameters,
                               const LayoutOptions& options);

  const LayoutOptions& options() const { return options_; }
  std::span<const ReplicatedParameter> parameters() const { return parameters_; }
  std::span<const Bucket> buckets() const { return buckets_; }
  uint64_t ElementsOf(uint32_t owner) const { return owned_[owner]; }
  // Whether gradients of this parameter are sparse.
  bool IsSparse(uint32_t parameter) const;
  // Hash of everything that decides the meaning of messages (parameters, forms, number of
  // replicas). Replicas with different fingerprints cannot exchange messages.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  Layout() = default;
  void Fill();
  void AddToBucket(uint32_t parameter, uint64_t first, uint64_t count);
  void AddPiece(uint32_t owner, uint32_t parameter, uint64_t first, uint64_t count);
  uint32_t LeastLoaded(uint64_t skip) const;

  LayoutOptions options_;
  std::vector<ReplicatedParameter> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<uint64_t> owned_;
  uint64_t fingerprint_ = 0;
};

}  // namespace longhaul::replicas
