// predict before the other codec: front and differences of a blob that is made, the checks of one
// that came, and which tokens share a row.
#include "codec/cuda/module/kernels.cuh"
#include "codec/predict/cuda/kernels.h"
#include "codec/predict/cuda/rows.cuh"

namespace longhaul::codec::cuda {
namespace {

using predict::Kind;

constexpr uint32_t kWarps = kThreads / kWarp;
// Tokens for which a warp looks for others with the same row, and for which its block does; tokens
// that are compared with these at a time.
constexpr uint32_t kOfWarp = 4, kOfBlock = kOfWarp * kWarps, kAtOnce = 1024;

// The tables' check, with what was learned since the last call. By one thread.
__device__ uint64_t CheckNow(PredictState* state) {
  if (state->learned == 0) return state->check;
  uint32_t sum = 0;
  for (uint32_t& part : state->sums) {
    sum += part;
    part = 0;
  }
  state->learned = 0;
  state->check = predict::NextCheck(state->check, sum);
  return state->check;
}

__device__ uint64_t FrontWord(const PredictArgs& args) {
  return args.kind | uint64_t{args.id_bytes} << 8;
}

// For the kernels behind this one. By one thread.
__device__ void KeepMeanCount(const PredictArgs& args, const PredictRows& rows) {
  if (args.counts_dev == nullptr) return;
  *ScratchAt(args, PredictScratch(0).mean_count) = args.counts_dev[rows.PlaceOfMean()];
}

// By one block.
__device__ void WriteFront(const PredictArgs& args, const PredictRows& rows) {
  auto* const words = reinterpret_cast<uint64_t*>(args.blob_dev);
  if (threadIdx.x < 8) words[threadIdx.x] = args.header.words[threadIdx.x];
  if (threadIdx.x == 0) {
    words[8] = args.state_dev == nullptr ? 0 : CheckNow(args.state_dev);
    words[9] = FrontWord(args);
    *args.fault_dev = 0;
    KeepMeanCount(args, rows);
  }
  // The padding of the ids, whole but for the last ones.
  const uint64_t ids = uint64_t{rows.Tokens()} * args.id_bytes;
  for (uint64_t k = ids + threadIdx.x; k < args.other - predict::kFrontBytes; k += blockDim.x) {
    args.blob_dev[kPredictIds + k] = 0;
  }
}

// By one block.
__device__ void CheckFront(const PredictArgs& args, const PredictRows& rows) {
  const auto* const words = reinterpret_cast<const uint64_t*>(args.blob_dev);
  bool possible = true;
  if (threadIdx.x == 0) {
    const uint64_t check = args.state_dev == nullptr ? 0 : CheckNow(args.state_dev);
    if (words[8] != check) atomicOr(args.fault_dev, kFaultTables);
    possible = words[9] == FrontWord(args);
    KeepMeanCount(args, rows);
  }
  constexpr uint32_t kCount = kNonfiniteOffset / 8;
  if (threadIdx.x < 8 && threadIdx.x != kCount) {
    const auto* const within =
        reinterpret_cast<const uint64_t*>(args.blob_dev + kHeaderBytes + args.other);
    possible = possible && within[threadIdx.x] == args.within.words[threadIdx.x];
  }
  const uint64_t ids = uint64_t{rows.Tokens()} * args.id_bytes;
  for (uint64_t k = ids + threadIdx.x; k < args.other - predict::kFrontBytes; k += blockDim.x) {
    possible = possible && args.blob_dev[kPredictIds + k] == 0;
  }
  if (!possible) atomicOr(args.fault_dev, kFaultContents);
}

// By one block, which has this token.
template <int kWidth>
__device__ void WriteDifference(const PredictArgs& args, const PredictRows& rows, uint32_t token) {
  if (threadIdx.x == 0) {
    unsigned char* const section = args.blob_dev + kPredictIds;
    const uint32_t id = rows.IdOf(token);
    if (args.id_bytes == 2) {
      reinterpret_cast<uint16_t*>(section)[token] = static_cast<uint16_t>(id);
    } else {
      reinterpret_cast<uint32_t*>(section)[token] = id;
    }
  }
  const Predictor predictor(args, rows, token);
  const uint64_t first = uint64_t{token} * args.tensor.channels;
#pragma unroll 2
  for (uint32_t c = kWidth * threadIdx.x; c < args.tensor.channels; c += kWidth * kThreads) {
    Channels<kWidth> values, predicted;
    LoadElements<kWidth>(args.tensor, first + c, values);
    predictor.Predict<kWidth>(c, predicted);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = FiniteOrNan(values[k] - predicted[k]);
    StoreChannels<kWidth>(values, args.values_dev + first + c);
  }
}

__device__ void CheckId(const PredictArgs& args, const PredictRows& rows, uint32_t token) {
  const uint32_t id = rows.IdOf(token);
  const bool possible =
      id < args.vocabulary && (args.ids_dev == nullptr || args.ids_dev[token] == id);
  if (!possible) atomicOr(args.fault_dev, kFaultContents);
}

// By one block: for kOfBlock tokens from `begin` on, how many others have the same row. Ids may be
// any.
__device__ void FindRepeats(const PredictArgs& args, const PredictRows& rows, uint32_t begin,
                            bool of_pairs) {
  __shared__ uint32_t others[kAtOnce];
  const uint32_t tokens = rows.Tokens();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t mine = begin + threadIdx.x / kWarp * kOfWarp;
  uint32_t row[kOfWarp], all[kOfWarp] = {}, before[kOfWarp] = {};
#pragma unroll
  for (uint32_t j = 0; j < kOfWarp; ++j) row[j] = rows.RowOf(min(mine + j, tokens - 1), of_pairs);
  for (uint32_t first = 0; first < tokens; first += kAtOnce) {
    const uint32_t count = min(tokens - first, kAtOnce);
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < count; k += kThreads) {
      others[k] = rows.RowOf(first + k, of_pairs);
    }
    __syncthreads();
    for (uint32_t k = lane; k < count; k += kWarp) {
      const uint32_t other = others[k];
#pragma unroll
      for (uint32_t j = 0; j < kOfWarp; ++j) {
        all[j] += other == row[j] ? 1 : 0;
        before[j] += other == row[j] && first + k < mine + j ? 1 : 0;
      }
    }
  }
  const PredictScratch scratch(tokens);
#pragma unroll
  for (uint32_t j = 0; j < kOfWarp; ++j) {
    const uint32_t repeats = __reduce_add_sync(kAllLanes, all[j]);
    const bool again = __any_sync(kAllLanes, before[j] != 0) != 0;
    const uint32_t token = mine + j;
    if (lane != 0 || token >= tokens) continue;
    const uint32_t place = token + (of_pairs ? tokens : 0);
    ScratchAt(args, scratch.repeats)[place] = repeats | (again ? kPredictAgain : 0);
    const bool known = of_pairs || row[j] < args.vocabulary;
    ScratchAt(args, scratch.counts)[place] =
        known ? args.counts_dev[rows.Place(row[j], of_pairs)] : 0;
  }
}

// Block 0: the front. Then, where the tables learn, a block for kOfBlock tokens of a table; they
// take longest. Then a block a token of what is encoded, or a thread a token of what came.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    BeginKernel(const __grid_constant__ PredictArgs args, uint32_t learning_blocks) {
  const PredictRows rows(args);
  if (blockIdx.x == 0) {
    if (args.decodes == 0) {
      WriteFront(args, rows);
    } else {
      CheckFront(args, rows);
    }
    return;
  }
  uint32_t block = blockIdx.x - 1;
  if (block < learning_blocks) {
    const uint32_t of_table = (rows.Tokens() + kOfBlock - 1) / kOfBlock;
    const bool of_pairs = block >= of_table;
    FindRepeats(args, rows, (of_pairs ? block - of_table : block) * kOfBlock, of_pairs);
    return;
  }
  block -= learning_blocks;
  if (args.decodes == 0) {
    WriteDifference<kWidth>(args, rows, block);
  } else if (const uint32_t token = block * kThreads + threadIdx.x; token < rows.Tokens()) {
    CheckId(args, rows, token);
  }
}

}  // namespace

int BeginPredict(int device, const PredictArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const uint32_t tokens = args->tensor.samples * args->tensor.tokens;
  const bool predicts = args->kind != static_cast<uint32_t>(Kind::kPlain);
  const bool learns = args->kind == static_cast<uint32_t>(Kind::kLearned);
  const uint32_t of_tokens = args->decodes == 0 ? tokens : (tokens + kThreads - 1) / kThreads;
  const uint32_t tables = !learns ? 0 : args->log2_pairs > 0 ? 2 : 1;
  const uint32_t learning_blocks = tables * ((tokens + kOfBlock - 1) / kOfBlock);
  const uint32_t blocks = 1 + learning_blocks + (predicts ? of_tokens : 0);
  const auto kernel = InFours(args->tensor) ? BeginKernel<4> : BeginKernel<1>;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args, learning_blocks);
  return Launched();
}

}  // namespace longhaul::codec::cuda
