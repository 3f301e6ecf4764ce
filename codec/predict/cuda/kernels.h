// Kernels of predict, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// What predict's tables on a device have besides the means and counts of their rows
// (predict/tables.h).
struct PredictState {
  static constexpr uint32_t kSums = 64;
  uint64_t check;  // before the updates of the last call
  // If the last call updated the tables, `learned` is 1 and `sums` add up to the sum of NextCheck,
  // with which the next call computes the new check.
  uint32_t learned;
  uint32_t sums[kSums];
};

struct PredictArgs {
  TensorArgs tensor;  // encode: read; decode: written
  HeaderArgs header;  // encode: the kernels replace its payload size, which is the largest
  // decode: the header that the other codec's blob must have; its count of tiles is not compared
  HeaderArgs within;
  uint32_t log2_pairs, prior;
  float rate;
  uint32_t kind, id_bytes;  // of predict::Front
  uint32_t vocabulary;
  Divisor tokens;
  uint64_t other;  // predict::OtherOffset
  unsigned char* blob_dev;
  // Encode: the ids of the tensor's tokens. Decode: the ids that the blob must have; null if any
  // ids will do.
  const uint32_t* ids_dev;
  // The next three are null for Kind::kPlain.
  float* means_dev;
  uint32_t* counts_dev;
  PredictState* state_dev;
  float* values_dev;           // first r, later r', at last x'
  float* differences_dev;      // x' - A[t], if there is a table of pairs
  unsigned char* scratch_dev;  // PredictScratch, aligned to 64 bytes
  // Begins as 0, and is or-ed with kFaultContents or kFaultTables; the tables then do not change.
  // Encode: in the scratch memory.
  uint32_t* fault_dev;
  uint32_t decodes;
};

// Offsets of arrays in the scratch memory. `repeats` and `counts` have two numbers for each token:
// first all those about the tokens' rows, then all those about the rows of the tokens' pairs.
struct PredictScratch {
  constexpr explicit PredictScratch(uint64_t tokens)
      : repeats(64),
        counts(repeats + 8 * tokens),
        teaches(counts + 8 * tokens),
        end(teaches + 4 * tokens) {}
  uint64_t fault = 0;  // uint32
  // uint32: how many tokens (or pairs) have this row, or-ed with kPredictAgain if an earlier one
  // has
  uint64_t repeats;
  uint64_t counts;   // uint32: the row's count before this tensor
  uint64_t teaches;  // uint32 for each token: 1 if the tables learn from it, else 0
  uint64_t end;
};
inline constexpr uint32_t kPredictAgain = 1u << 31;
inline uint64_t PredictScratchBytes(uint64_t tokens) {
  return (PredictScratch(tokens).end + 63) / 64 * 64;
}
// Maximum number of tokens of a tensor. The kernels compare every token with every other one, to
// find those with the same row.
inline constexpr uint64_t kMostPredictTokens = 1 << 17;

struct PredictKernels {
  static constexpr const char* kName = "predict";
  // Runs before the other codec's encoder or decoder. Encode: writes the front, the ids and r.
  // Decode: checks the front and the ids. Both, if the tables learn: find tokens that share a row.
  int (*begin)(int device, const PredictArgs* args, void* stream);
  // Runs after the other codec: computes x', and updates the rows that only one token has.
  int (*finish)(int device, const PredictArgs* args, void* stream);
  // Runs last: updates the rows that several tokens of the tensor have.
  int (*learn)(int device, const PredictArgs* args, void* stream);
};
extern const PredictKernels kPredictKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
