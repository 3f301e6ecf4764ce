// predict before the other codec: front and differences of a blob that is made, the checks of one
// that came, and the order in which rows will learn.
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/predict_rows.cuh"

namespace longhaul::codec::cuda {
namespace {

using predict::Kind;

constexpr uint32_t kWarps = kThreads / kWarp;

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

// By one block.
__device__ void WriteFront(const PredictArgs& args, const PredictRows& rows) {
  auto* const words = reinterpret_cast<uint64_t*>(args.blob_dev);
  if (threadIdx.x < 8) words[threadIdx.x] = args.header.words[threadIdx.x];
  if (threadIdx.x == 0) {
    words[8] = args.state_dev == nullptr ? 0 : CheckNow(args.state_dev);
    words[9] = FrontWord(args);
    *args.fault_dev = 0;
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
  const Predictor predictor(rows, token);
  const uint64_t first = uint64_t{token} * args.tensor.channels;
  for (uint32_t c = threadIdx.x; c < args.tensor.channels; c += blockDim.x) {
    const float value = LoadElement(args.tensor.data_dev, args.tensor.dtype, first + c);
    args.values_dev[first + c] = FiniteOrNan(value - predictor(c));
  }
}

__device__ void CheckId(const PredictArgs& args, const PredictRows& rows, uint32_t token) {
  const uint32_t id = rows.IdOf(token);
  const bool possible =
      id < args.vocabulary && (args.ids_dev == nullptr || args.ids_dev[token] == id);
  if (!possible) atomicOr(args.fault_dev, kFaultContents);
}

// By one warp: the place of a token's row among those of all tokens, sorted by row and then by
// token. Ids may be any.
__device__ void Sort(const PredictArgs& args, const PredictRows& rows, uint32_t token,
                     bool of_pairs) {
  const uint32_t tokens = rows.Tokens();
  const uint32_t row = rows.RowOf(token, of_pairs);
  uint32_t before = 0;  // rows that come before
  uint32_t equal = 0;   // of all tokens
  uint32_t equal_before = 0;
  for (uint32_t k = threadIdx.x % kWarp; k < tokens; k += kWarp) {
    const uint32_t other = rows.RowOf(k, of_pairs);
    before += other < row ? 1 : 0;
    equal += other == row ? 1 : 0;
    equal_before += other == row && k < token ? 1 : 0;
  }
  before = __reduce_add_sync(kAllLanes, before);
  equal = __reduce_add_sync(kAllLanes, equal);
  equal_before = __reduce_add_sync(kAllLanes, equal_before);
  if (threadIdx.x % kWarp != 0) return;
  const PredictScratch scratch(tokens);
  const uint32_t place = before + equal_before + (of_pairs ? tokens : 0);
  const auto at = [&](uint64_t array) -> uint32_t& {
    return reinterpret_cast<uint32_t*>(args.scratch_dev + array)[place];
  };
  const bool known = of_pairs || row < args.vocabulary;
  at(scratch.order) = token;
  at(scratch.lengths) = equal_before == 0 ? equal : 0;
  at(scratch.counts) = known ? args.counts_dev[rows.Place(row, of_pairs)] : 0;
}

// Block 0: the front. Then a block a token of what is encoded, or a thread a token of what came;
// then, where the tables learn, a warp a token and table.
__global__ void __launch_bounds__(kThreads)
    BeginKernel(const __grid_constant__ PredictArgs args, uint32_t token_blocks) {
  const PredictRows rows(args);
  if (blockIdx.x == 0) {
    if (args.decodes == 0) {
      WriteFront(args, rows);
    } else {
      CheckFront(args, rows);
    }
    return;
  }
  const uint32_t block = blockIdx.x - 1;
  if (block < token_blocks) {
    if (args.decodes == 0) {
      WriteDifference(args, rows, block);
    } else if (const uint32_t token = block * kThreads + threadIdx.x; token < rows.Tokens()) {
      CheckId(args, rows, token);
    }
    return;
  }
  const uint32_t warp = (block - token_blocks) * kWarps + threadIdx.x / kWarp;
  const bool of_pairs = warp >= rows.Tokens();
  const uint32_t token = of_pairs ? warp - rows.Tokens() : warp;
  if (token < rows.Tokens() && (!of_pairs || rows.HasPairs())) Sort(args, rows, token, of_pairs);
}

}  // namespace

int BeginPredict(int device, const PredictArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const uint32_t tokens = args->tensor.samples * args->tensor.tokens;
  const bool predicts = args->kind != static_cast<uint32_t>(Kind::kPlain);
  const bool learns = args->kind == static_cast<uint32_t>(Kind::kLearned);
  const uint32_t of_tokens = args->decodes == 0 ? tokens : (tokens + kThreads - 1) / kThreads;
  const uint32_t token_blocks = predicts ? of_tokens : 0;
  const uint32_t warps = learns ? tokens * (args->log2_pairs > 0 ? 2 : 1) : 0;
  BeginKernel<<<1 + token_blocks + (warps + kWarps - 1) / kWarps, kThreads, 0,
                static_cast<cudaStream_t>(stream)>>>(*args, token_blocks);
  return Launched();
}

}  // namespace longhaul::codec::cuda
