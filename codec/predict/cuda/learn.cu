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
constexpr uint32_t kShares = 64, kPairShares = 512;

// The count of tiles and the size of the blob within, to the header around. By one thread.
__device__ void FinishHeader(const PredictArgs& args) {
  auto* const words = reinterpret_cast<uint64_t*>(args.blob_dev);
  const auto* const within =
      reinterpret_cast<const uint64_t*>(args.blob_dev + kHeaderBytes + args.other);
  words[kNonfiniteOffset / 8] = within[kNonfiniteOffset / 8];
  words[kPayloadBytesOffset / 8] = args.other + kHeaderBytes + within[kPayloadBytesOffset / 8];
}

// True if rows learn. The first tensor teaches the mean alone.
__device__ bool RowsLearn(const PredictArgs& args) {
  return *ScratchAt(args, PredictScratch(0).mean_count) > 0;
}

// A row that one of the tensor's tokens has alone. No other block reads it, so it learns at once.
struct OwnRow {
  __device__ OwnRow(const PredictArgs& args, const PredictRows& rows, uint32_t token, bool of_pairs)
      : place(rows.Place(rows.RowOf(token, of_pairs), of_pairs)), numbers(rows.RowAt(place)) {
    counted = predict::AddCount(args.counts_dev[place], 1);
    rate = predict::Rate(1, counted, of_pairs ? args.prior : 0, args.rate);
  }
  // `values`: what is not known yet. Returns the new numbers as `news`.
  template <int kWidth>
  __device__ void Learn(uint32_t channel, const Channels<kWidth>& values, Channels<kWidth>* news) {
    uint32_t bits[kWidth];
    LoadRow<kWidth>(numbers + channel, *news);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      bits[k] = F32ToBf16((*news)[k] + rate * (values[k] - (*news)[k]));
      (*news)[k] = __uint_as_float(bits[k] << 16);
      hash += bits[k] * predict::ChannelWeight(channel + k);
    }
    StoreRow<kWidth>(bits, numbers + channel);
  }
  uint64_t place;
  uint16_t* numbers;
  uint32_t counted;
  float rate;
  uint32_t hash = 0;
};

// True if no other token of the tensor has the row of this token's pair, nor this token's row.
__device__ bool IsOwnPair(const PredictArgs& args, const PredictRows& rows, uint32_t token) {
  const uint32_t* const repeats = ScratchAt(args, PredictScratch(rows.Tokens()).repeats) + token;
  return repeats[0] == 1 && repeats[rows.Tokens()] == 1;
}

// Updates the row of a token that teaches and, if `pair`, then the row of its pair. values_dev has
// x'. All threads of the block call it.
template <int kWidth>
__device__ void LearnOwnRows(const PredictArgs& args, const PredictRows& rows, uint32_t token,
                             bool pair) {
  const uint64_t first = uint64_t{token} * args.tensor.channels;
  OwnRow of_token(args, rows, token, false);
  OwnRow of_pair = pair ? OwnRow(args, rows, token, true) : of_token;
  __syncthreads();  // counts are read
#pragma unroll 2
  for (uint32_t c = kWidth * threadIdx.x; c < args.tensor.channels; c += kWidth * kThreads) {
    Channels<kWidth> values, mean, unknown, news;
    LoadChannels<kWidth>(args.values_dev + first + c, values);
    LoadChannels<kWidth>(args.mean_dev + c, mean);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) unknown[k] = values[k] - mean[k];
    of_token.Learn<kWidth>(c, unknown, &news);
    if (!pair) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) unknown[k] = values[k] - (mean[k] + news[k]);
    of_pair.Learn<kWidth>(c, unknown, &news);
  }
  AddToCheck(args, of_token.hash, of_token.place);
  if (threadIdx.x == 0) args.counts_dev[of_token.place] = of_token.counted;
  if (pair) {
    AddToCheck(args, of_pair.hash, of_pair.place);
    if (threadIdx.x == 0) args.counts_dev[of_pair.place] = of_pair.counted;
  }
}

// A block a token: r' becomes x'. Then the token's own row learns if no other token has it, and
// the row of its pair if no other token has that either. Eight blocks run on a processor at a time.
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
  const bool to_f32 = args.decodes != 0 && args.tensor.dtype == kF32;  // values_dev is the output
  const Predictor predictor(args, rows, token);
  bool teaches = true;
#pragma unroll 2
  for (uint32_t c = kWidth * threadIdx.x; c < channels; c += kWidth * kThreads) {
    Channels<kWidth> value, predicted;
    LoadChannels<kWidth>(args.values_dev + first + c, value);
    predictor.Predict<kWidth>(c, predicted);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      value[k] = FiniteOrNan(value[k] + predicted[k]);
      teaches = teaches && fabsf(value[k]) < predict::kTeachable;
    }
    if (learns || to_f32) StoreChannels<kWidth>(value, args.values_dev + first + c);
    if (args.decodes != 0 && !to_f32) StoreElements<kWidth>(value, args.tensor, first + c);
  }
  if (!learns) return;
  const bool all = __syncthreads_and(teaches) != 0;
  const PredictScratch scratch(rows.Tokens());
  if (threadIdx.x == 0) {
    ScratchAt(args, scratch.teaches)[token] = all ? 1 : 0;
    if (token == 0) args.state_dev->learned = 1;
  }
  if (!all || !RowsLearn(args) || ScratchAt(args, scratch.repeats)[token] != 1) return;
  LearnOwnRows<kWidth>(args, rows, token, rows.HasPairs() && IsOwnPair(args, rows, token));
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

// Shared memory of LearnKernel.
struct LearnMemory {
  uint32_t firsts[kThreads];       // tokens that come first in their rows
  uint32_t list[kThreads];         // tokens of a row
  const uint16_t* rows[kThreads];  // in a row of pairs: these tokens' own rows
  uint32_t of_warps[kWarps];
};

// A thread's numbers: of every channel that it has.
using OfThread = float[kOfThread];

// Adds what is not known of `count` listed tokens to a thread's sums, in their order: their values
// without `mean` and, for a row of pairs, without the tokens' rows. `seen`: tokens that were added
// before.
template <bool kOfPairs>
__device__ void AddTokens(const PredictArgs& args, const LearnMemory& memory, uint32_t channel,
                          uint32_t count, uint32_t seen, const OfThread& mean, OfThread& sums) {
  const uint32_t channels = args.tensor.channels;
  for (uint32_t begin = 0; begin < count; begin += kAhead) {
    float ahead[kOfThread][kAhead], known[kOfThread][kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      if (begin + j >= count) continue;
      const float* const of_token = args.values_dev + uint64_t{memory.list[begin + j]} * channels;
#pragma unroll
      for (uint32_t k = 0; k < kOfThread; ++k) {
        const uint32_t c = channel + k * kThreads;
        ahead[k][j] = c < channels ? of_token[c] : 0;
        known[k][j] = mean[k];
        if constexpr (kOfPairs) {
          if (c < channels) known[k][j] = mean[k] + Bf16ToF32(memory.rows[begin + j][c]);
        }
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      if (begin + j >= count) continue;
#pragma unroll
      for (uint32_t k = 0; k < kOfThread; ++k) {
        const float unknown = ahead[k][j] - known[k][j];
        sums[k] = seen + begin + j == 0 ? unknown : sums[k] + unknown;
      }
    }
  }
}

// What the row learns whose first token is `first`: a thread walks its tokens in their order. By a
// whole block.
template <bool kOfPairs>
__device__ void LearnRow(const PredictArgs& args, const PredictRows& rows, uint32_t first,
                         LearnMemory* memory) {
  const uint32_t tokens = rows.Tokens();
  const uint32_t channels = args.tensor.channels;
  const uint32_t channel = blockIdx.y * kOfBlock + threadIdx.x;
  const PredictScratch scratch(tokens);
  const uint32_t place = first + (kOfPairs ? tokens : 0);
  const uint32_t row = rows.RowOf(first, kOfPairs);
  OfThread sums = {}, mean = {};
#pragma unroll
  for (uint32_t k = 0; k < kOfThread; ++k) {
    const uint32_t c = channel + k * kThreads;
    if (c < channels) mean[k] = args.mean_dev[c];
  }
  uint32_t seen = 0;
  uint32_t left = ScratchAt(args, scratch.repeats)[place];
  for (uint32_t begin = first; left > 0; begin += kThreads) {
    const uint32_t token = begin + threadIdx.x;
    const bool there = token < tokens && rows.RowOf(token, kOfPairs) == row;
    left -= __syncthreads_count(there);
    const bool teaching = there && ScratchAt(args, scratch.teaches)[token] != 0;
    const uint32_t count = List(teaching, token, memory->list, memory->of_warps);
    if constexpr (kOfPairs) {
      if (threadIdx.x < count) {
        const uint32_t id = rows.IdOf(memory->list[threadIdx.x]);
        memory->rows[threadIdx.x] = rows.RowAt(rows.Place(id, false));
      }
      __syncthreads();
    }
    AddTokens<kOfPairs>(args, *memory, channel, count, seen, mean, sums);
    seen += count;
  }
  if (seen == 0) return;
  const uint32_t counted = predict::AddCount(ScratchAt(args, scratch.counts)[place], seen);
  const float rate = predict::Rate(seen, counted, kOfPairs ? args.prior : 0, args.rate);
  const float inverse = 1.0f / static_cast<float>(seen);
  const uint64_t of_row = rows.Place(row, kOfPairs);
  uint16_t* const numbers = rows.RowAt(of_row);
  uint32_t hash = 0;
#pragma unroll
  for (uint32_t k = 0; k < kOfThread; ++k) {
    const uint32_t c = channel + k * kThreads;
    if (c >= channels) continue;
    const float old = Bf16ToF32(numbers[c]);
    const uint16_t bits = F32ToBf16(old + rate * (sums[k] * inverse - old));
    numbers[c] = bits;
    hash += bits * predict::ChannelWeight(c);
  }
  AddToCheck(args, hash, of_row);
  if (blockIdx.y == 0 && threadIdx.x == 0) args.counts_dev[of_row] = counted;
}

// The rows that FinishKernel has left, of one table; those of pairs after those of tokens. Block x
// has every gridDim.x-th token: of rows that come first there it updates kOfBlock channels.
template <bool kOfPairs>
__global__ void __launch_bounds__(kThreads) LearnKernel(const __grid_constant__ PredictArgs args) {
  __shared__ LearnMemory memory;
  AwaitKernelBefore();
  if (*args.fault_dev != 0 || !RowsLearn(args)) return;
  const PredictRows rows(args);
  const uint32_t tokens = rows.Tokens();
  const PredictScratch scratch(tokens);
  const uint32_t* const repeats = ScratchAt(args, scratch.repeats) + (kOfPairs ? tokens : 0);
  const uint32_t token = blockIdx.x + threadIdx.x * gridDim.x;
  bool left = token < tokens && (repeats[token] & kPredictAgain) == 0;
  left = left && (kOfPairs ? !IsOwnPair(args, rows, token) : repeats[token] > 1);
  const uint32_t count = List(left, token, memory.firsts, memory.of_warps);
  for (uint32_t k = 0; k < count; ++k) {
    LearnRow<kOfPairs>(args, rows, memory.firsts[k], &memory);
  }
}

// Updates the mean over all tokens. A block has kWarp channels, one for each lane. The mean of a
// channel has kMeanParts sums (format.h), and each warp computes an equal number of them.
__global__ void __launch_bounds__(kThreads) MeanKernel(const __grid_constant__ PredictArgs args) {
  constexpr uint32_t kOfWarp = predict::kMeanParts / kWarps;
  __shared__ float parts[predict::kMeanParts][kWarp];
  __shared__ uint32_t taught[kWarps];
  AwaitKernelBefore();
  if (*args.fault_dev != 0) return;
  const PredictRows rows(args);
  const uint32_t tokens = rows.Tokens();
  const uint32_t channels = args.tensor.channels;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t channel = blockIdx.x * kWarp + lane;
  const uint32_t* const teaches = ScratchAt(args, PredictScratch(tokens).teaches);
  const float* const values = args.values_dev + min(channel, channels - 1);
  float sums[kOfWarp] = {};
  uint32_t count = 0;
#pragma unroll 8
  for (uint32_t first = warp * kOfWarp; first < tokens; first += predict::kMeanParts) {
#pragma unroll
    for (uint32_t j = 0; j < kOfWarp; ++j) {
      // Every value is loaded, so that no load waits for another one.
      const uint32_t token = min(first + j, tokens - 1);
      const float value = values[uint64_t{token} * channels];
      const bool counts = first + j < tokens && teaches[token] != 0;
      // Sums that begin with 0 do not change by adding 0.
      sums[j] = sums[j] + (counts ? value : 0.0f);
      count += counts ? 1 : 0;
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kOfWarp; ++j) parts[warp * kOfWarp + j][lane] = sums[j];
  if (lane == 0) taught[warp] = count;
  __syncthreads();
  if (warp > 0) return;
  float sum = parts[0][lane];
  for (uint32_t part = 1; part < predict::kMeanParts; ++part) sum = sum + parts[part][lane];
  uint32_t all = 0;
  for (const uint32_t of_warp : taught) all += of_warp;
  if (all == 0) return;
  const uint32_t counted = predict::AddCount(*ScratchAt(args, PredictScratch(0).mean_count), all);
  const float rate = predict::Rate(all, counted, 0, args.rate);
  uint32_t hash = 0;
  if (channel < channels) {
    const float old = args.mean_dev[channel];
    const float mean = old + rate * (sum * (1.0f / static_cast<float>(all)) - old);
    args.mean_dev[channel] = mean;
    hash = __float_as_uint(mean) * predict::ChannelWeight(channel);
  }
  AddToCheck(args, hash, rows.PlaceOfMean());
  if (channel == 0) args.counts_dev[rows.PlaceOfMean()] = counted;
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
  const uint32_t least = (tokens + kThreads - 1) / kThreads;
  const uint32_t of_channels = (args->tensor.channels + kOfBlock - 1) / kOfBlock;
  const auto grid = [&](uint32_t shares) {
    return dim3(shares > least ? shares : least, of_channels);
  };
  auto* const queue = static_cast<cudaStream_t>(stream);
  int failed = LaunchNext(LearnKernel<false>, {grid(kShares), kThreads, 0}, queue, *args);
  if (failed == 0 && args->log2_pairs > 0) {
    // Most rows of pairs have one token, so they are many.
    failed = LaunchNext(LearnKernel<true>, {grid(kPairShares), kThreads, 0}, queue, *args);
  }
  if (failed != 0) return failed;
  const uint32_t blocks = (args->tensor.channels + kWarp - 1) / kWarp;
  return LaunchNext(MeanKernel, {blocks, kThreads, 0}, queue, *args);
}

int BeginPredict(int device, const PredictArgs* args, void* stream);  // begin.cu
const PredictKernels kPredictKernels = {BeginPredict, FinishPredict, LearnPredict};

}  // namespace longhaul::codec::cuda
