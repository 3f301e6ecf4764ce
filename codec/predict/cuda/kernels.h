// Kernels of predict, and their arguments (codec/cuda/kernel_table.h says what all kernels
// promise).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// What predict's tables are on a device: means, then counts, of the rows of tokens and those of
// pairs (predict/tables.h), and this.
struct PredictState {
  static constexpr uint32_t kSums = 64;
  uint64_t check;
  // The parts of NextCheck's sum over what was learned since `check`. The next call adds them up.
  uint32_t learned;
  uint32_t sums[kSums];
};

struct PredictArgs {
  TensorArgs tensor;  // encode: read; decode: written
  HeaderArgs header;  // encode: without the payload's bytes
  HeaderArgs within;  // decode: of the other codec's blob, but for its count of tiles
  uint32_t log2_pairs, prior;
  float rate;
  uint32_t kind, id_bytes;  // predict::Front; the check is on the device
  uint32_t vocabulary;
  Divisor tokens;
  uint64_t other;  // predict::OtherOffset
  unsigned char* blob_dev;
  // A tensor's ids. Decode: those that the blob must have, or null.
  const uint32_t* ids_dev;
  // Null for Kind::kPlain.
  float* means_dev;
  uint32_t* counts_dev;
  PredictState* state_dev;
  float* values_dev;           // r, r' and x', one after the other
  float* differences_dev;      // x' - A[t], where there are pairs
  unsigned char* scratch_dev;  // PredictScratch, aligned to 64 bytes
  // Begins as 0; or-ed with kFaultContents or kFaultTables: nothing is learned. Encode: of the
  // scratch.
  uint32_t* fault_dev;
  uint32_t decodes;
};

// Arrays of two numbers a token: first for the tensor's tokens, then for its pairs.
struct PredictScratch {
  constexpr explicit PredictScratch(uint64_t tokens)
      : repeats(64),
        counts(repeats + 8 * tokens),
        teaches(counts + 8 * tokens),
        end(teaches + 4 * tokens) {}
  uint64_t fault = 0;  // uint32
  uint64_t repeats;    // uint32: tokens with this one's row, with kPredictAgain where one is before
  uint64_t counts;     // uint32: of that row so far
  uint64_t teaches;    // uint32, one a token
  uint64_t end;
};
inline constexpr uint32_t kPredictAgain = 1u << 31;
inline uint64_t PredictScratchBytes(uint64_t tokens) {
  return (PredictScratch(tokens).end + 63) / 64 * 64;
}
// Tokens with the same row are found by comparing each with each.
inline constexpr uint64_t kMostPredictTokens = 1 << 17;

struct PredictKernels {
  static constexpr const char* kName = "predict";
  // Before the other codec's encoder or decoder: the front, the differences, and which tokens share
  // a row.
  int (*begin)(int device, const PredictArgs* args, void* stream);
  // Behind them: the decoded values, and what rows of one token learn.
  int (*finish)(int device, const PredictArgs* args, void* stream);
  // Then the other rows learn.
  int (*learn)(int device, const PredictArgs* args, void* stream);
};
extern const PredictKernels kPredictKernels;  // defined in the module alone

}  // namespace longhaul::codec::cuda
