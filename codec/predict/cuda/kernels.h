// Kernels of predict, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

// The state of predict's tables in device memory, without the tables themselves
// (predict/tables.h).
struct PredictState {
  static constexpr uint32_t kSums = 64;
  uint64_t check;  // before the updates of the last call
  // If the last call updated the tables, `learned` is 1. The next call then computes the new check
  // from the old check and from the total of `sums`, which is the argument `sum` of NextCheck.
  uint32_t learned;
  uint32_t sums[kSums];
};

struct PredictArgs {
  TensorArgs tensor;  // encode: read; decode: written
  HeaderArgs header;  // encode: has the largest payload size; the kernels write the actual one
  // Decode: the header that the other codec's blob must have. The count of tiles is not compared.
  HeaderArgs within;
  uint32_t log2_pairs, prior;
  float rate;
  uint32_t kind, id_bytes;  // of predict::Front
  uint32_t vocabulary;
  Divisor tokens;
  uint64_t other;  // predict::OtherOffset
  unsigned char* blob_dev;
  // Encode: the ids of the tensor's tokens. Decode: the ids that the blob must have. Null: the blob
  // may have any ids below `vocabulary`.
  const uint32_t* ids_dev;
  // The next four are null for Kind::kPlain. The parts of the tables' memory (predict/tables.h).
  float* mean_dev;
  uint32_t* counts_dev;
  uint16_t* rows_dev;
  PredictState* state_dev;
  // r, later r', at last x' if the tables learn. In a decoder to fp32 this is the output, and at
  // last has x'.
  float* values_dev;
  unsigned char* scratch_dev;  // PredictScratch, aligned to 64 bytes
  // Begins as 0. If a fault is found, the word is or-ed with kFaultContents or kFaultTables, and
  // the tables do not change. Encode: a word of the scratch memory.
  uint32_t* fault_dev;
  uint32_t decodes;
};

// Offsets of arrays in the scratch memory. `repeats` and `counts` have two parts, each with one
// number for each token: first about the tokens' own rows, then about the rows of their pairs.
struct PredictScratch {
  constexpr explicit PredictScratch(uint64_t tokens)
      : repeats(64),
        counts(repeats + 8 * tokens),
        teaches(counts + 8 * tokens),
        end(teaches + 4 * tokens) {}
  uint64_t fault = 0;       // uint32
  uint64_t mean_count = 4;  // uint32: the count of the mean before this tensor
  // uint32: how many tokens of the tensor have the same row as this token, itself included. Or-ed
  // with kPredictAgain if an earlier token has the same row.
  uint64_t repeats;
  uint64_t counts;   // uint32: the row's count before this tensor
  uint64_t teaches;  // uint32 for each token: 1 if the tables learn from it, else 0
  uint64_t end;
};
inline constexpr uint32_t kPredictAgain = 1u << 31;
inline uint64_t PredictScratchBytes(uint64_t tokens) {
  return (PredictScratch(tokens).end + 63) / 64 * 64;
}
// Maximum number of tokens of a tensor. The kernels compare every token with all others, to find
// tokens with the same row.
inline constexpr uint64_t kMostPredictTokens = 1 << 17;

struct PredictKernels {
  static constexpr const char* kName = "predict";
  // Runs before the other codec's encoder or decoder. Encode: writes the front, the ids and r.
  // Decode: checks the front and the ids. If the tables learn, also finds tokens that share a row.
  int (*begin)(int device, const PredictArgs* args, void* stream);
  // Runs after the other codec: computes x', and updates the rows of tokens that only one token of
  // the tensor has, with the rows of their pairs if these have no other token either.
  int (*finish)(int device, const PredictArgs* args, void* stream);
  // Runs last: updates the rows that several tokens of the tensor have, then the rows of pairs that
  // need them, then the mean over all tokens.
  int (*learn)(int device, const PredictArgs* args, void* stream);
};
extern const PredictKernels kPredictKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
