// tagc's exchange for the sparse pieces of one shard: an index from each contributor, the union of
// all indices from the owner, a sketch from each contributor.
//
// The owner's own gradients cost no bytes, so they are summed whole: the union has the positions of
// the others alone, and is with two replicas just what the other one sent. Numbers in sketches are
// fixed-point with one exponent for the shard; sums of them are exact. What fixed point loses, at
// most 2^-30 x replicas of the largest, stays in the residual with all that was not kept.
//
// Threads: none of its own. Errors: kInvalidArgument for a peer's bytes, and the arithmetic's.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_SPARSE_H_
#define LONGHAUL_TRANSPORT_REPLICAS_SPARSE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/replicas/arithmetic.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/message.h"

namespace longhaul::replicas {

// How many elements of a piece a contributor keeps.
uint64_t Kept(const Piece& piece, double keep);

// What this replica gives to another one's shard in a step.
class SparseContribution {
 public:
  // Adds the gradients to the residuals and chooses from these. Where a number is not finite the
  // residuals stay as they were.
  StatusOr<IndexPayload> Select(const Shard& shard, double keep,
                                std::span<const ParameterMemory> memory, const Residuals& residuals,
                                Arithmetic* arithmetic);
  // The payload of the sketch, empty where there is none; takes what is sent out of the residuals.
  StatusOr<std::vector<std::byte>> Answer(const Shard& shard, std::span<const std::byte> payload,
                                          const Residuals& residuals, Arithmetic* arithmetic);
  // How many bytes of the last answer are numbers that its union left out of the sketch.
  uint64_t asked_bytes() const { return asked_bytes_; }

 private:
  std::vector<uint64_t> bitmap_;
  std::vector<float> values_;  // of the bitmap's positions, in order
  uint64_t asked_bytes_ = 0;
};

struct SparseCounts {
  uint64_t kept_by_any = 0;  // positions of unions
  uint64_t asked_for = 0;    // of them, left out of sketches
  uint64_t cells = 0;
};

// The owner's side of a step.
class SparseSum {
 public:
  explicit SparseSum(uint32_t replicas) : replicas_(replicas) { Clear(); }
  void Clear();

  Status AddIndex(uint32_t replica, std::span<const std::byte> payload, const Shard& shard,
                  double keep);
  bool HasIndices() const { return indices_missing_ == 0; }
  // Once all indices are there.
  void Plan(uint32_t seed);
  UnionPayload UnionFor(uint32_t replica) const;
  Status AddSketch(uint32_t replica, std::span<const std::byte> payload);
  bool IsComplete() const;
  // Means over replicas to `own`.
  Status Reduce(std::span<const OwnPiece> own, std::span<const ParameterMemory> memory,
                Arithmetic* arithmetic);
  const SparseCounts& counts() const { return counts_; }

 private:
  const uint32_t replicas_;
  std::vector<std::optional<IndexPayload>> indices_;
  uint32_t indices_missing_ = 0, sketches_missing_ = 0;
  bool planned_ = false;
  UnionPayload union_;
  std::vector<bool> sketched_;
  std::vector<uint32_t> cells_, left_out_;  // sums
  SparseCounts counts_;
};

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_SPARSE_H_
