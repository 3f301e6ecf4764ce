// tagc's exchange for the sparse pieces of one shard. Each contributor sends an index of the
// positions it keeps, the owner answers with the union of all indices, and each contributor sends a
// sketch of its numbers there.
//
// The owner's own gradients need no bytes, so they are summed completely. The union covers the
// other replicas only; with two replicas it is the contributor's own index. Numbers in sketches are
// fixed-point with one exponent for the shard, so their sums are exact. Residuals hold all numbers
// that were not sent, and the rounding of fixed point, at most 2^-30 x replicas of the largest
// number.
//
// Threads: none of its own. Errors: kInvalidArgument for a peer's bytes; errors of the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/replicas/arithmetic.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/message.h"

namespace longhaul::replicas {

// Number of elements of a piece that a contributor keeps.
uint64_t Kept(const Piece& piece, double keep);

// This replica's contribution to another replica's shard in a step.
class SparseContribution {
 public:
  // Adds the gradients to the residuals and selects the largest. If a number is not finite, the
  // residuals do not change.
  StatusOr<IndexPayload> Select(const Shard& shard, double keep,
                                std::span<const ParameterMemory> memory, const Residuals& residuals,
                                Arithmetic* arithmetic);
  // Makes the sketch for the owner's union, and subtracts what it sends from the residuals. Empty
  // if there is no sketch.
  StatusOr<std::vector<std::byte>> Answer(const Shard& shard, std::span<const std::byte> payload,
                                          const Residuals& residuals, Arithmetic* arithmetic);
  // Bytes in the last answer for numbers that the union left out of the sketch.
  uint64_t asked_bytes() const { return asked_bytes_; }

 private:
  std::vector<uint64_t> bitmap_;
  std::vector<float> values_;  // at the bitmap's positions, in order
  uint64_t asked_bytes_ = 0;
};

struct SparseCounts {
  uint64_t kept_by_any = 0;  // positions of unions
  uint64_t asked_for = 0;    // positions of unions that are left out of sketches
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
  // Call it once all indices are there.
  void Plan(uint32_t seed);
  UnionPayload UnionFor(uint32_t replica) const;
  Status AddSketch(uint32_t replica, std::span<const std::byte> payload);
  bool IsComplete() const;
  // Writes the means over replicas to `own`.
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
  std::vector<uint32_t> cells_, left_out_;  // sums over replicas
  SparseCounts counts_;
};

}  // namespace longhaul::replicas
