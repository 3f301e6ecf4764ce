// Kernels of predict, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// Besides means and counts of the rows of tokens and pairs (predict/tables.h), predict's tables on
// a device have this state.
struct PredictState {
  static constexpr uint32_t kSums = 64;
  uint64_t check;
  // The parts of NextCheck's sum over all updates since `check`. The next call adds them up.
  uint32_t learned;
  uint32_t sums[kSums];
};

struct PredictArgs {
  TensorArgs tensor;  // encode: read; decode: written
  HeaderArgs header;  // encode: without the payload's bytes
  HeaderArgs within;  // decode: the other codec's blob header, without its count of tiles
  uint32_t log2_pairs, prior;
  float rate;
  uint32_t kind, id_bytes;  // predict::Front; the check is on the device
  uint32_t vocabulary;
  Divisor tokens;
  uint64_t other;  // predict::OtherOffset
  unsigned char* blob_dev;
  // A tensor's ids. Decode: the ids that the blob must have, or null.
  const uint32_t* ids_dev;
  // The following three are null for Kind::kPlain.
  float* means_dev;
  uint32_t* counts_dev;
  PredictState* state_dev;
  float* values_dev;           // r, r' and x', one after the other
  float* differences_dev;      // x' - A[t], if there are pairs
  unsigned char* scratch_dev;  // PredictScratch, aligned to 64 bytes
  // Begins as 0; or-ed with kFaultContents or kFaultTables: then the tables do not change. Encode:
  // in the scratch.
  uint32_t* fault_dev;
  uint32_t decodes;
};

// Offsets of arrays. `repeats` and `counts` have two numbers a token: first one for each of the
// tensor's tokens, then one for each of its pairs.
struct PredictScratch {
  constexpr explicit PredictScratch(uint64_t tokens)
      : repeats(64),
        counts(repeats + 8 * tokens),
        teaches(counts + 8 * tokens),
        end(teaches + 4 * tokens) {}
  uint64_t fault = 0;  // uint32
  // uint32: number of the tensor's tokens (or pairs) with this row, with kPredictAgain if an
  // earlier one has it.
  uint64_t repeats;
  uint64_t counts;   // uint32: occurrences of that row so far
  uint64_t teaches;  // uint32, one a token
  uint64_t end;
};
inline constexpr uint32_t kPredictAgain = 1u << 31;
inline uint64_t PredictScratchBytes(uint64_t tokens) {
  return (PredictScratch(tokens).end + 63) / 64 * 64;
}
// Limit, because tokens with the same row are found by comparing each token with each other.
inline constexpr uint64_t kMostPredictTokens = 1 << 17;

struct PredictKernels {
  static constexpr const char* kName = "predict";
  // Runs before the other codec's encoder or decoder: the front, the differences, and which tokens
  // share a row.
  int (*begin)(int device, const PredictArgs* args, void* stream);
  // Runs after the other codec: the decoded values, and the updates of rows that only one of the
  // tensor's tokens has.
  int (*finish)(int device, const PredictArgs* args, void* stream);
  // Runs last: the updates of the other rows.
  int (*learn)(int device, const PredictArgs* args, void* stream);
};
extern const PredictKernels kPredictKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
