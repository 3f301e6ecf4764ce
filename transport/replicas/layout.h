// Cuts a stage's parameters into buckets, which are exchanged one by one. Cuts each bucket into
// shards, one for each data-parallel replica, which is the shard's owner. The owner gets the mean
// of its shard's gradients and updates the shard's parameters. Every replica computes the same
// layout from the same parameters.
//
// Buckets take parameters in the given order. A parameter is cut where a bucket is full. Its part
// in a bucket is cut into one piece for each replica. All cuts are at multiples of kUnit elements
// (a unit). If the units do not divide evenly, the replicas that own least so far get one more
// each. Elements after the last whole unit go to the last replica. A part with fewer units than
// replicas, and a parameter that must be whole, go to one owner: the replica that owns least.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "run/replicas/options.h"

namespace longhaul::replicas {

// A multiple of every group or block size of the codecs: 4-bit differences and gradients, sketches,
// and transforms.
inline constexpr uint64_t kUnit = 2048;
inline constexpr uint64_t kMostBucketElements = uint64_t{1} << 28;

struct ReplicatedParameter {
  std::string name;
  uint64_t elements = 0;
  bool may_be_sparse = false;  // the codec tagc may send only its largest gradients
  bool whole = false;          // must have a single owner, as its optimizer needs the whole matrix
};

// Consecutive elements of a parameter that have one owner: `count` elements from `first` on.
// `parameter` is an index in Layout::parameters().
struct Piece {
  uint32_t parameter = 0;
  uint64_t first = 0, count = 0;
  // Index of the piece's first element among the shard's dense pieces or among its sparse pieces.
  // Each piece begins at a multiple of 64. Stochastic rounding and bitmaps use this index.
  uint64_t at = 0;
};
// All gradients of dense pieces are sent in each step; of sparse pieces only the largest
// (sparse.h).
struct Shard {
  std::vector<Piece> dense, sparse;
  uint64_t positions = 0;  // end of the last sparse piece: counts elements and gaps between pieces
  bool empty() const { return dense.empty() && sparse.empty(); }
  // Returns all pieces, dense ones first.
  std::vector<Piece> pieces() const;
};
struct Bucket {
  std::vector<Shard> shards;         // by owner
  std::vector<uint32_t> parameters;  // indices of parameters that have a piece in this bucket
};

// A bucket is full at `bucket_elements` elements, kUnit to kMostBucketElements. The cut at a
// multiple of kUnit, or a parameter that must be whole, may make a bucket larger.
struct LayoutOptions {
  uint32_t replicas = 1;
  GradientOptions gradients;
  ParameterForm parameters = ParameterForm::kFp32;
  uint64_t bucket_elements = uint64_t{1} << 22;
};

class Layout {
 public:
  // kInvalidArgument: no replica or more than kMostReplicas, buckets smaller than kUnit or larger
  // than kMostBucketElements, a duplicate name, an empty parameter, or a parameter that must be
  // whole and has more than kMostBucketElements.
  static StatusOr<Layout> Make(std::vector<ReplicatedParameter> parameters,
                               const LayoutOptions& options);

  const LayoutOptions& options() const { return options_; }
  std::span<const ReplicatedParameter> parameters() const { return parameters_; }
  std::span<const Bucket> buckets() const { return buckets_; }
  // Returns the number of elements that this replica owns.
  uint64_t ElementsOf(uint32_t owner) const { return owned_[owner]; }
  // Returns true if the gradients of this parameter are sent as sparse pieces.
  bool IsSparse(uint32_t parameter) const;
  // Returns a hash of everything that decides the meaning of messages (parameters, forms, number of
  // replicas, size of buckets). Replicas with different fingerprints cannot exchange messages.
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
