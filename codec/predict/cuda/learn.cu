// predict behind the other codec: decoded values, and what the tables learn of them.
#include "codec/cuda/module/kernels.cuh"
#include "codec/predict/cuda/kernels.h"
#include "codec/predict/cuda/rows.cuh"

namespace longhaul::codec::cuda {
namespace {

using predict::Kind;

constexpr uint32_t kWarps = kThreads / kWarp;
// Channels of a thread, and of a block.
constexpr uint32_t kOfThread = 2, kOfBlock = kOfThread * kThreads;
// Tokens whose values a thread asks for before it adds them up.
constexpr uint32_t kAhead = 16;
// A table's tokens are divided among so many blocks, or among more where these have fewer threads.
constexpr uint32_t kShares = 64;

// The count of tiles and the size of the blob within, to the header around. By one thread.
__device__ void FinishHeader(const PredictArgs& args) {
  auto* const words = reinterpret_cast<uint64_t*>(args.blob_dev);
  const auto* const within =
      reinterpret_cast<const uint64_t*>(args.blob_dev + kHeaderBytes + args.other);
  words[kNonfiniteOffset / 8] = within[kNonfiniteOffset / 8];
  words[kPayloadBytesOffset / 8] = args.other + kHeaderBytes + within[kPayloadBytesOffset / 8];
}

// A row that one of the tensor's tokens has alone. No other block reads it, so it learns at once.
struct OwnRow {
  __device__ OwnRow(const PredictArgs& args, const PredictRows& rows, uint32_t token, bool of_pairs)
      : row(rows.RowOf(token, of_pairs)), means(rows.MeansAt(rows.Place(row, of_pairs))) {
    uint32_t* const count = args.counts_dev + rows.Place(row, of_pairs);
    counted = predict::AddCount(*count, 1);
    rate = predict::Rate(1, counted, of_pairs ? args.prior : 0, args.rate);
  }
  // `old`: its means so far.
  template <int kWidth>
  __device__ void Learn(uint32_t channel, const Channels<kWidth>& old,
                        const Channels<kWidth>& values) {
    Channels<kWidth> mean;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      mean[k] = old[k] + rate * (values[k] - old[k]);
      hash += __float_as_uint(mean[k]) * predict::ChannelWeight(channel + k);
    }
    StoreChannels<kWidth>(mean, means + channel);
  }
  uint32_t row;
  float* means;
  uint32_t counted;
  float rate;
  uint32_t hash = 0;
};

// r' + p.
template <int kWidth>
__device__ inline void AddPredicted(const Channels<kWidth>& predicted, Channels<kWidth>& value) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) value[k] = FiniteOrNan(value[k] + predicted[k]);
}

// Which of a token's rows no other token has, and whether values_dev has x' or still r'.
struct OwnRows {
  bool of_token, of_pair;
  bool decoded;
};

// By one block: of a token that teaches, what its own rows learn.
template <int kWidth>
__device__ void LearnOwnRows(const PredictArgs& args, const PredictRows& rows, uint32_t token,
                             const OwnRows& own) {
  const uint64_t first = uint64_t{token} * args.tensor.channels;
  const Predictor predictor(rows, token);
  OwnRow of_token(args, rows, token, false);
  OwnRow of_pair = own.of_pair ? OwnRow(args, rows, token, true) : of_token;
  __syncthreads();  // counts are read
#pragma unroll 2
  for (uint32_t c = kWidth * threadIdx.x; c < args.tensor.channels; c += kWidth * kThreads) {
    Channels<kWidth> value, token_mean, pair_mean = {};
    LoadChannels<kWidth>(args.values_dev + first + c, value);
    LoadChannels<kWidth>(predictor.of_token + c, token_mean);
    if (rows.HasPairs()) LoadChannels<kWidth>(predictor.of_pair + c, pair_mean);
    if (!own.decoded) {
      Channels<kWidth> predicted;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        predicted[k] = rows.HasPairs() ? token_mean[k] + pair_mean[k] : token_mean[k];
      }
      AddPredicted<kWidth>(predicted, value);
    }
    if (own.of_pair) {
      Channels<kWidth> difference;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) difference[k] = value[k] - token_mean[k];
      of_pair.Learn<kWidth>(c, pair_mean, difference);
    }
    if (own.of_token) of_token.Learn<kWidth>(c, token_mean, value);
  }
  if (own.of_token) {
    AddToCheck(args, of_token.hash, of_token.row, false);
    if (threadIdx.x == 0) args.counts_dev[rows.Place(of_token.row, false)] = of_token.counted;
  }
  if (own.of_pair) {
    AddToCheck(args, of_pair.hash, of_pair.row, true);
    if (threadIdx.x == 0) args.counts_dev[rows.Place(of_pair.row, true)] = of_pair.counted;
  }
}

// A block a token: r' becomes x'. Eight of them run on a processor at a time.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 8)
    FinishKernel(const __grid_constant__ PredictArgs args, bool values) {
  AwaitKernelBefore();
  const bool learns = args.kind == static_cast<uint32_t>(Kind::kLearned);
  if (args.decodes == 0 && blockIdx.x == 0 && threadIdx.x == 0) FinishHeader(args);
  const PredictRows rows(args);
  const uint32_t token = blockIdx.x;
  const uint32_t channels = args.tensor.channels;
  const uint64_t first = uint64_t{token} * channels;
  if (*args.fault_dev != 0) {
    if (args.decodes == 0) return;
    for (uint32_t c = threadIdx.x; c < channels; c += kThreads) {
      StoreElement(__uint_as_float(0x7fc00000), args.tensor.data_dev, args.tensor.dtype, first + c);
    }
    return;
  }
  if (!values) return;
  const PredictScratch scratch(rows.Tokens());
  const uint32_t* const repeats = ScratchAt(args, scratch.repeats) + token;
  OwnRows own{.of_token = learns && repeats[0] == 1,
              .of_pair = learns && rows.HasPairs() && repeats[rows.Tokens()] == 1,
              .decoded = false};
  // Rows of several tokens learn later, of what is kept here; a tensor of fp32 is the output.
  own.decoded = (args.decodes != 0 && args.tensor.dtype == kF32) || (learns && !own.of_token);
  const bool keeps_differences = learns && rows.HasPairs() && !own.of_pair;
  const Predictor predictor(rows, token);
  bool teaches = true;
#pragma unroll 2
  for (uint32_t c = kWidth * threadIdx.x; c < channels; c += kWidth * kThreads) {
    Channels<kWidth> value, predicted;
    LoadChannels<kWidth>(args.values_dev + first + c, value);
    predictor.Predict<kWidth>(c, predicted);
    AddPredicted<kWidth>(predicted, value);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) teaches = teaches && fabsf(value[k]) < predict::kTeachable;
    if (own.decoded) StoreChannels<kWidth>(value, args.values_dev + first + c);
    if (args.decodes != 0 && args.tensor.dtype != kF32) {
      StoreElements<kWidth>(value, args.tensor, first + c);
    }
    if (!keeps_differences) continue;
    LoadChannels<kWidth>(predictor.of_token + c, predicted);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) value[k] = value[k] - predicted[k];
    StoreChannels<kWidth>(value, args.differences_dev + first + c);
  }
  if (!learns) return;
  const bool all = __syncthreads_and(teaches) != 0;
  if (threadIdx.x == 0) {
    ScratchAt(args, scratch.teaches)[token] = all ? 1 : 0;
    if (token == 0) args.state_dev->learned = 1;
  }
  if (all && (own.of_token || own.of_pair)) LearnOwnRows<kWidth>(args, rows, token, own);
}

// Writes the numbers of the threads for which `there` is true to `list`, in the order of threads,
// and returns how many there are. Called by a whole block.
__device__ uint32_t List(bool there, uint32_t number, uint32_t* list, uint32_t* of_warps) {
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t votes = __ballot_sync(kAllLanes, there);
  __syncthreads();  // nobody reads the list any more
  if (threadIdx.x % kWarp == 0) of_warps[warp] = __popc(votes);
  __syncthreads();
  uint32_t place = __popc(votes & ((1u << threadIdx.x % kWarp) - 1));
  uint32_t all = 0;
  for (uint32_t k = 0; k < kWarps; ++k) {
    if (k < warp) place += of_warps[k];
    all += of_warps[k];
  }
  if (there) list[place] = number;
  __syncthreads();
  return all;
}

// Adds the values of tokens to a thread's sums, in their order.
__device__ void AddTokens(const float* values, uint32_t channels, uint32_t channel,
                          const uint32_t* tokens, uint32_t count, uint32_t seen,
                          float (&sums)[kOfThread]) {
  for (uint32_t begin = 0; begin < count; begin += kAhead) {
    float ahead[kOfThread][kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      if (begin + j >= count) continue;
      const float* const of_token = values + uint64_t{tokens[begin + j]} * channels;
#pragma unroll
      for (uint32_t k = 0; k < kOfThread; ++k) {
        const uint32_t c = channel + k * kThreads;
        ahead[k][j] = c < channels ? of_token[c] : 0;
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      if (begin + j >= count) continue;
#pragma unroll
      for (uint32_t k = 0; k < kOfThread; ++k) {
        sums[k] = seen + begin + j == 0 ? ahead[k][j] : sums[k] + ahead[k][j];
      }
    }
  }
}

// What a row learns that several tokens have, of which `first` is the first: a thread walks them in
// their order. By a whole block.
__device__ void LearnSharedRow(const PredictArgs& args, const PredictRows& rows, uint32_t first,
                               bool of_pairs, uint32_t* list, uint32_t* of_warps) {
  const uint32_t tokens = rows.Tokens();
  const uint32_t channels = args.tensor.channels;
  const uint32_t channel = blockIdx.y * kOfBlock + threadIdx.x;
  const float* const values = of_pairs ? args.differences_dev : args.values_dev;
  const PredictScratch scratch(tokens);
  const uint32_t place = first + (of_pairs ? tokens : 0);
  const uint32_t row = rows.RowOf(first, of_pairs);
  float sums[kOfThread] = {};
  uint32_t seen = 0;
  uint32_t left = ScratchAt(args, scratch.repeats)[place];
  for (uint32_t begin = first; left > 0; begin += kThreads) {
    const uint32_t token = begin + threadIdx.x;
    const bool there = token < tokens && rows.RowOf(token, of_pairs) == row;
    left -= __syncthreads_count(there);
    const bool teaching = there && ScratchAt(args, scratch.teaches)[token] != 0;
    const uint32_t count = List(teaching, token, list, of_warps);
    AddTokens(values, channels, channel, list, count, seen, sums);
    seen += count;
  }
  if (seen == 0) return;
  const uint32_t counted = predict::AddCount(ScratchAt(args, scratch.counts)[place], seen);
  const float rate = predict::Rate(seen, counted, of_pairs ? args.prior : 0, args.rate);
  const float inverse = 1.0f / static_cast<float>(seen);
  float* const means = rows.MeansAt(rows.Place(row, of_pairs));
  uint32_t hash = 0;
#pragma unroll
  for (uint32_t k = 0; k < kOfThread; ++k) {
    const uint32_t c = channel + k * kThreads;
    if (c >= channels) continue;
    const float mean = means[c] + rate * (sums[k] * inverse - means[c]);
    means[c] = mean;
    hash += __float_as_uint(mean) * predict::ChannelWeight(c);
  }
  AddToCheck(args, hash, row, of_pairs);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    args.counts_dev[rows.Place(row, of_pairs)] = counted;
  }
}

// Block x of a table has every gridDim.x-th token: of rows that come first there, and again later,
// it updates kOfBlock channels.
__global__ void __launch_bounds__(kThreads) LearnKernel(const __grid_constant__ PredictArgs args) {
  __shared__ uint32_t firsts[kThreads], list[kThreads], of_warps[kWarps];
  AwaitKernelBefore();
  if (*args.fault_dev != 0) return;
  const PredictRows rows(args);
  const bool of_pairs = blockIdx.z == 1;
  const uint32_t tokens = rows.Tokens();
  const PredictScratch scratch(tokens);
  const uint32_t* const repeats = ScratchAt(args, scratch.repeats) + (of_pairs ? tokens : 0);
  const uint32_t token = blockIdx.x + threadIdx.x * gridDim.x;
  const uint32_t of_token = token < tokens ? repeats[token] : 1;
  const uint32_t count =
      List(of_token > 1 && (of_token & kPredictAgain) == 0, token, firsts, of_warps);
  for (uint32_t k = 0; k < count; ++k) {
    LearnSharedRow(args, rows, firsts[k], of_pairs, list, of_warps);
  }
}

}  // namespace

int FinishPredict(int device, const PredictArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  // What is only predicted needs no x' at the encoder.
  const bool learns = args->kind == static_cast<uint32_t>(Kind::kLearned);
  const bool predicts = args->kind != static_cast<uint32_t>(Kind::kPlain);
  const bool values = learns || (predicts && args->decodes != 0);
  const uint32_t tokens = args->tensor.samples * args->tensor.tokens;
  const uint32_t blocks = values || args->decodes != 0 ? tokens : 1;
  return LaunchNext(InFours(args->tensor) ? FinishKernel<4> : FinishKernel<1>,
                    {blocks, kThreads, 0}, static_cast<cudaStream_t>(stream), *args, values);
}

int LearnPredict(int device, const PredictArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const uint32_t tokens = args->tensor.samples * args->tensor.tokens;
  const uint32_t shares = (tokens + kThreads - 1) / kThreads;
  const dim3 grid(shares > kShares ? shares : kShares,
                  (args->tensor.channels + kOfBlock - 1) / kOfBlock, args->log2_pairs > 0 ? 2 : 1);
  return LaunchNext(LearnKernel, {grid, kThreads, 0}, static_cast<cudaStream_t>(stream), *args);
}

int BeginPredict(int device, const PredictArgs* args, void* stream);  // begin.cu
const PredictKernels kPredictKernels = {BeginPredict, FinishPredict, LearnPredict};

}  // namespace longhaul::codec::cuda
