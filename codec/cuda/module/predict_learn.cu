// predict behind the other codec: decoded values, and what the tables learn of them.
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/predict_rows.cuh"

namespace longhaul::codec::cuda {
namespace {

using predict::Kind;

constexpr uint32_t kWarps = kThreads / kWarp;
// Channels of a thread, and of a block.
constexpr uint32_t kOfThread = 2, kOfBlock = kOfThread * kThreads;
// Tokens whose values a thread asks for before it adds them up.
constexpr uint32_t kAhead = 16;

// The count of tiles and the size of the blob within, to the header around. By one thread.
__device__ void FinishHeader(const PredictArgs& args) {
  auto* const words = reinterpret_cast<uint64_t*>(args.blob_dev);
  const auto* const within =
      reinterpret_cast<const uint64_t*>(args.blob_dev + kHeaderBytes + args.other);
  words[kNonfiniteOffset / 8] = within[kNonfiniteOffset / 8];
  words[kPayloadBytesOffset / 8] = args.other + kHeaderBytes + within[kPayloadBytesOffset / 8];
}

// A block a token: r' becomes x'.
__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ PredictArgs args, bool values) {
  const bool learns = args.kind == static_cast<uint32_t>(Kind::kLearned);
  if (args.decodes == 0 && blockIdx.x == 0 && threadIdx.x == 0) FinishHeader(args);
  const PredictRows rows(args);
  const uint32_t token = blockIdx.x;
  const uint64_t first = uint64_t{token} * args.tensor.channels;
  const float limit = LargestFinite(args.tensor.dtype);
  if (*args.fault_dev != 0) {
    if (args.decodes == 0) return;
    for (uint32_t c = threadIdx.x; c < args.tensor.channels; c += blockDim.x) {
      StoreElement(__uint_as_float(0x7fc00000), args.tensor.data_dev, args.tensor.dtype, first + c);
    }
    return;
  }
  if (!values) return;
  const Predictor predictor(rows, token);
  bool teaches = true;
  for (uint32_t c = threadIdx.x; c < args.tensor.channels; c += blockDim.x) {
    const float value = FiniteOrNan(args.values_dev[first + c] + predictor(c));
    args.values_dev[first + c] = value;
    teaches = teaches && fabsf(value) < predict::kTeachable;
    if (learns && rows.HasPairs()) {
      args.differences_dev[first + c] = value - predictor.of_token[c];
    }
    if (args.decodes != 0 && args.tensor.dtype != kF32) {
      const float most = value > limit ? limit : value;
      StoreElement(most < -limit ? -limit : most, args.tensor.data_dev, args.tensor.dtype,
                   first + c);
    }
  }
  const bool all = __syncthreads_and(teaches) != 0;
  if (learns && threadIdx.x == 0) {
    const PredictScratch scratch(rows.Tokens());
    reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.teaches)[token] = all ? 1 : 0;
  }
}

// Up to kThreads tokens of a row, in their order, of which those that teach go to `list`; gives
// their number. By a whole block.
__device__ uint32_t ListTokens(const uint32_t* order, const uint32_t* teaches, uint32_t count,
                               uint32_t* list, uint32_t* of_warps) {
  const uint32_t warp = threadIdx.x / kWarp;
  const bool there = threadIdx.x < count;
  const uint32_t token = there ? order[threadIdx.x] : 0;
  const bool teaching = there && teaches[token] != 0;
  const uint32_t votes = __ballot_sync(kAllLanes, teaching);
  __syncthreads();  // nobody reads the list any more
  if (threadIdx.x % kWarp == 0) of_warps[warp] = __popc(votes);
  __syncthreads();
  uint32_t place = __popc(votes & ((1u << threadIdx.x % kWarp) - 1));
  uint32_t all = 0;
  for (uint32_t k = 0; k < kWarps; ++k) {
    if (k < warp) place += of_warps[k];
    all += of_warps[k];
  }
  if (teaching) list[place] = token;
  __syncthreads();
  return all;
}

// A block for each place in the order of a table's rows, and for kOfBlock channels. Only those
// where a row begins have work: a thread walks its tokens in order.
__global__ void __launch_bounds__(kThreads) LearnKernel(const __grid_constant__ PredictArgs args) {
  __shared__ uint32_t list[kThreads], of_warps[kWarps];
  if (*args.fault_dev != 0) return;
  const PredictRows rows(args);
  const bool of_pairs = blockIdx.z == 1;
  const uint32_t tokens = rows.Tokens();
  const uint32_t place = blockIdx.x + (of_pairs ? tokens : 0);
  const PredictScratch scratch(tokens);
  const auto array = [&](uint64_t offset) {
    return reinterpret_cast<const uint32_t*>(args.scratch_dev + offset);
  };
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) {
    args.state_dev->learned = 1;
  }
  const uint32_t length = array(scratch.lengths)[place];
  if (length == 0) return;
  const uint32_t channels = args.tensor.channels;
  const uint32_t channel = blockIdx.y * kOfBlock + threadIdx.x;
  const float* const values = of_pairs ? args.differences_dev : args.values_dev;
  const uint32_t* const order = array(scratch.order) + place;
  const uint32_t row = rows.RowOf(order[0], of_pairs);
  float sums[kOfThread] = {};
  uint32_t seen = 0;
  for (uint32_t first = 0; first < length; first += kThreads) {
    const uint32_t count = ListTokens(order + first, array(scratch.teaches),
                                      min(length - first, kThreads), list, of_warps);
    for (uint32_t begin = 0; begin < count; begin += kAhead) {
      float ahead[kOfThread][kAhead];
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j) {
        if (begin + j >= count) continue;
        const float* const of_token = values + uint64_t{list[begin + j]} * channels;
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
    seen += count;
  }
  if (seen == 0) return;
  const uint32_t counted = predict::AddCount(array(scratch.counts)[place], seen);
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
  // A sum of integers: in whatever order, the same.
  hash = __reduce_add_sync(kAllLanes, hash);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(
        &args.state_dev->sums[(blockIdx.x * kWarps + threadIdx.x / kWarp) % PredictState::kSums],
        hash * predict::RowWeight(row, of_pairs));
  }
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    args.counts_dev[rows.Place(row, of_pairs)] = counted;
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
  FinishKernel<<<values || args->decodes != 0 ? tokens : 1, kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(*args, values);
  return Launched();
}

int LearnPredict(int device, const PredictArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const dim3 grid(args->tensor.samples * args->tensor.tokens,
                  (args->tensor.channels + kOfBlock - 1) / kOfBlock, args->log2_pairs > 0 ? 2 : 1);
  LearnKernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
