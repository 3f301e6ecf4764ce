// Exchanges the sparse pieces of one shard (layout.h) by tagc (codec/tagc). Each contributor, a
// replica that does not own the shard, adds its gradients to its residuals, and keeps the largest
// sums. The contributor sends an index: the positions of the kept numbers. The owner answers with
// the union of all indices. Then each contributor sends a sketch (codec/tagc/sketch.h) of its kept
// numbers, and the owner recovers their sums. Some positions cannot be recovered from the sketch.
// The union lists them, and their numbers are sent after the sketch, not in it.
//
// The owner's own gradients are not sent, so all of them are summed (owner=dense). With
// owner=sparse the owner selects, too, and keeps residuals of its own shard; the messages are the
// same. The union covers the other replicas only; with two replicas it is the contributor's own
// index. Numbers in sketches are fixed-point with one exponent for the shard, so their sums are
// exact. Residuals hold all numbers that were not sent, and the rounding errors of the sent
// numbers. Such an error is less than 2^-29 x replicas x the largest number.
//
// Threads: one at a time. Errors: kInvalidArgument for a peer's bytes; errors of the arithmetic.
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

// Returns how many elements of a piece a contributor keeps: the share `keep` (0 to 1) of them,
// rounded up, and at least 1.
uint64_t Kept(const Piece& piece, double keep);

// This replica's contribution to a shard in a step. Call Select; then Answer if another replica
// owns the shard, or KeepOwn if this one does.
// `memory` and `residuals` have one entry for each parameter of the stage. `arithmetic` must not be
// null.
class SparseContribution {
 public:
  // Adds the gradients to the residuals, and returns the index of the largest sums. If a gradient
  // is not finite, the residuals do not change, and the index has no positions.
  StatusOr<IndexPayload> Select(const Shard& shard, double keep,
                                std::span<const ParameterMemory> memory, const Residuals& residuals,
                                Arithmetic* arithmetic);
  // Takes the payload of the owner's union, and returns the payload of the sketch message.
  // Subtracts the sent numbers from the residuals. The result is empty if a replica's gradient is
  // not finite; then send no sketch.
  StatusOr<std::vector<std::byte>> Answer(const Shard& shard, std::span<const std::byte> payload,
                                          const Residuals& residuals, Arithmetic* arithmetic);
  // Subtracts the selected numbers from the residuals, for the owner's own shard: they are in its
  // sums without a message.
  Status KeepOwn(const Shard& shard, const Residuals& residuals, Arithmetic* arithmetic);
  // What Select has selected: nothing if a gradient was not finite.
  bool nonfinite() const { return nonfinite_; }
  std::span<const uint64_t> bitmap() const { return bitmap_; }
  std::span<const float> values() const { return values_; }
  // Returns how many bytes of the last answer were for numbers that the union left out of the
  // sketch.
  uint64_t asked_bytes() const { return asked_bytes_; }

 private:
  std::vector<uint64_t> bitmap_;
  std::vector<float> values_;  // at the bitmap's positions, in order
  bool nonfinite_ = false;
  uint64_t asked_bytes_ = 0;
};

struct SparseCounts {
  uint64_t kept_by_any = 0;  // positions in unions
  uint64_t asked_for = 0;    // positions in unions that are left out of sketches
  uint64_t cells = 0;        // in sketches
};

// The owner's side of a step, for its shard of one bucket. In each step call the methods in the
// order in which they stand here.
class SparseSum {
 public:
  explicit SparseSum(uint32_t replicas) : replicas_(replicas) { Clear(); }
  void Clear();

  // Takes another replica's index.
  Status AddIndex(uint32_t replica, std::span<const std::byte> payload, const Shard& shard,
                  double keep);
  bool HasIndices() const { return indices_missing_ == 0; }
  // Computes the union and the sketch's size. Call it when all indices have come. `seed` chooses
  // the sketch's hash functions; any number will do.
  void Plan(uint32_t seed);
  // Returns the union to send to this replica.
  UnionPayload UnionFor(uint32_t replica) const;
  Status AddSketch(uint32_t replica, std::span<const std::byte> payload);
  // Returns true if all sketches have come, or if no sketch is needed because a gradient is not
  // finite.
  bool IsComplete() const;
  // Writes the means over replicas to the gradients of `own`. Writes NaN to all of them if a
  // gradient of another replica is not finite. The owner's summands are its gradients in `memory`,
  // or what `selected` holds where that is not null. Call it once IsComplete returns true.
  Status Reduce(std::span<const OwnPiece> own, std::span<const ParameterMemory> memory,
                const SparseContribution* selected, Arithmetic* arithmetic);
  const SparseCounts& counts() const { return counts_; }

 private:
  StatusOr<std::vector<uint32_t>> Recover();

  const uint32_t replicas_;
  std::vector<std::optional<IndexPayload>> indices_;
  uint32_t indices_missing_ = 0, sketches_missing_ = 0;
  bool planned_ = false;
  UnionPayload union_;
  std::vector<bool> sketched_;
  std::vector<uint32_t> cells_, left_out_;  // sums over the other replicas
  SparseCounts counts_;
};

}  // namespace longhaul::replicas
