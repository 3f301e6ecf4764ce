// dither's encoder in two kernels. The first codes each group and leaves its words in scratch
// memory. The second adds up the numbers of words and copies all words to their places in the blob.
// So no thread block waits for another.
#include "codec/cuda/module/kernels.cuh"
#include "codec/dither/cuda/group.cuh"

namespace longhaul::codec::cuda {
namespace {

// The quantized blocks of a group, but for their codes.
struct GroupAtHand {
  int16_t indexes[dither::kGroupBlocks];  // q
  uint8_t scales[dither::kGroupBlocks];
  int32_t exponent;
};

// Adds the second half of a lane's numbers to the first half, repeatedly, until kLast are left.
template <int kHalf, int kLast = 1>
__device__ inline void FoldInLane(float (&sums)[kOfLane]) {
#pragma unroll
  for (int k = 0; k < kHalf; ++k) sums[k] = sums[k] + sums[k + kHalf];
  if constexpr (kHalf > kLast) FoldInLane<kHalf / 2, kLast>(sums);
}

// Steps 1, 2 and 4 of gauss: scales the values and applies the signs. If the block has no scale,
// the values become zeros.
struct Normalized {
  int q;
  float inverse_root;
};
__device__ Normalized Normalize(const DitherArgs& args, const DitherPlace& place,
                                uint32_t magnitude, float (&values)[kOfLane]) {
  for (uint32_t distance = 1; distance * kOfLane < args.block; distance *= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, magnitude, distance);
    if (distance < place.lanes) magnitude = max(magnitude, other);
  }
  const bool scaled = magnitude != 0 && magnitude < kF32Infinity;
  const int exponent = scaled ? FloorLog2(magnitude) : 0;
  const ScaleUp scale(1 - exponent);
  float sums[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    values[k] = scaled ? scale(values[k]) : 0.0f;
    sums[k] = values[k] * values[k];
  }
  FoldInLane<kRun, kRun>(sums);
  for (uint32_t distance = args.block / kOfLane / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int k = 0; k < kRun; ++k) {
      const float other = __shfl_xor_sync(kAllLanes, sums[k], distance);
      if (distance < place.lanes) sums[k] = sums[k] + other;
    }
  }
  FoldInLane<kRun / 2>(sums);
  if (!scaled) return {magnitude == 0 ? gauss::kZeroIndex : gauss::kNonfiniteIndex, 1.0f};
  ChangeSigns(place, values);
  const int root = gauss::RootIndex(sums[0]);
  const int log2_size = __ffs(static_cast<int>(place.size)) - 1;
  return {4 * (exponent - 1) + root - 2 * log2_size, gauss::InverseRoot(root)};
}

// Quantizes the blocks of a warp: writes their codes and their q.
template <int kHalfBits>
__device__ void QuantizeBlocks(const DitherArgs& args, const DitherGroup& group,
                               const DitherPlace& place, uint8_t* codes, GroupAtHand* at_hand) {
  const bool vectorised = Vectorised(args.tensor);
  float values[kOfLane];
  uint32_t magnitude = 0;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    const uint32_t first = RunBegin(place, run);
    Lane half;
    LoadLane(args.tensor, vectorised, place.tile, {first, first + kPerLane / 2}, &half);
    magnitude = max(magnitude, half.magnitude);
#pragma unroll
    for (int k = 0; k < kRun; ++k) values[run * kRun + k] = half.values[k];
  }
  const Normalized normalized = Normalize(args, place, magnitude, values);
  TransformBlocks(args, place, values);
  if (!place.there) return;
  const float factor = normalized.inverse_root * dither::Tables<kHalfBits>::kPerUnit;
#pragma unroll
  for (int eight = 0; eight < kOfLane; eight += 8) {
    const uint32_t in_group = place.first + RunBegin(place, eight / kRun) + eight % kRun;
    const Philox::Counter noises = EightNoises(args.noise, (group.first_index + in_group) / 8);
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint32_t number = NoiseOf(noises, k);
      const float s = __fadd_rn(__fmul_rn(values[eight + k], factor),
                                __uint_as_float(dither::kIntegersOfNumber + number));
      words[k / 4] |= dither::CodeOf(__float_as_uint(s), number) << k % 4 * 8;
    }
    *reinterpret_cast<uint2*>(codes + in_group) = make_uint2(words[0], words[1]);
  }
  if (place.lane == 0) at_hand->indexes[place.index] = static_cast<int16_t>(normalized.q);
}

// Step 7, by one warp: two blocks for each lane. Returns the number of blocks that are not finite.
__device__ int WriteScales(const DitherGroup& group, GroupAtHand* at_hand) {
  const uint32_t lane = threadIdx.x % kWarp;
  int largest = gauss::kZeroIndex;
  int nonfinite = 0;
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    const uint32_t block = 2 * lane + k;
    if (block >= group.blocks) continue;
    const int q = at_hand->indexes[block];
    if (q == gauss::kNonfiniteIndex) {
      ++nonfinite;
    } else {
      largest = max(largest, q);
    }
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  const int exponent = largest == gauss::kZeroIndex ? 0 : gauss::ExponentOf(largest);
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    const uint32_t block = 2 * lane + k;
    at_hand->scales[block] =
        block < group.blocks ? gauss::ScaleByte(at_hand->indexes[block], exponent) : 0;
  }
  if (lane == 0) at_hand->exponent = exponent;
  return static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<uint32_t>(nonfinite)));
}

// Writes the words that lanes put out, in the order of lanes.
class WordWriter {
 public:
  __device__ WordWriter(uint16_t* words, uint32_t most) : words_(words), most_(most) {}

  // Puts out a word if `must`. Returns the new state. All lanes call it together.
  __device__ uint32_t Shrunk(uint32_t state, bool must) {
    const uint32_t who = __ballot_sync(kAllLanes, must);
    const uint32_t before = __popc(who & ((1u << threadIdx.x % kWarp) - 1));
    // A group cannot have more words (tables.h); the comparison protects the memory all the same.
    if (must && count_ + before < most_) words_[count_ + before] = static_cast<uint16_t>(state);
    count_ += __popc(who);
    return must ? state >> 16 : state;
  }
  __device__ uint32_t count() const { return count_; }

 private:
  uint16_t* const words_;
  const uint32_t most_;
  uint32_t count_ = 0;
};

// dither::Interval, with what a coding step needs of it already computed.
struct alignas(16) CodingInterval {
  uint32_t reciprocal;
  uint32_t limit;  // a state from here on must put out a word
  uint32_t start;
  uint32_t rest_shift;  // kTableSize - frequency, and shift << 16
};
__device__ inline CodingInterval ForCoding(const dither::Interval& interval) {
  const uint32_t rest = dither::kTableSize - interval.frequency;
  return {interval.reciprocal, uint32_t{interval.frequency} << (32 - dither::kTableBits),
          interval.start, rest | interval.shift << 16};
}
// dither::Push().
__device__ inline uint32_t Push(uint32_t state, const CodingInterval& interval) {
  const uint32_t quotient = __umulhi(state, interval.reciprocal) >> (interval.rest_shift >> 16);
  return state + interval.start + quotient * (interval.rest_shift & 0xffff);
}

template <int kHalfBits>
__device__ constexpr dither::Intervals<kHalfBits> kIntervals;

// Codes a group, by one warp. Returns the number of words.
template <int kHalfBits>
__device__ uint32_t CodeGroup(const DitherArgs& args, const DitherGroup& group,
                              const uint8_t* codes_at_hand, const GroupAtHand& at_hand,
                              const CodingInterval* intervals, uint16_t* words, uint32_t* states) {
  // Steps whose codes are read before any of them is coded: what is read does not depend on states.
  constexpr uint32_t kAhead = 8;
  constexpr int kReach = dither::Tables<kHalfBits>::kReach;
  const uint32_t lane = threadIdx.x % kWarp;
  WordWriter writer(words, static_cast<uint32_t>(args.group_words));
  uint32_t state = dither::FirstState(at_hand.scales[2 * lane], at_hand.scales[2 * lane + 1]);
  for (uint32_t first = 0; first < group.elements; first += kAhead * kWarp) {
    uint32_t codes[kAhead];
    CodingInterval ahead[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      const uint32_t place = first + k * kWarp;
      codes[k] = codes_at_hand[(place < group.elements ? place : 0) + lane];
    }
    bool any = false;
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      ahead[k] = intervals[codes[k]];
      any = any || dither::Escapes(codes[k], kReach);
    }
    any = __any_sync(kAllLanes, any) != 0;
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      if (first + k * kWarp >= group.elements) break;
      const bool escapes = dither::Escapes(codes[k], kReach);
      if (any && __any_sync(kAllLanes, escapes)) {
        state = writer.Shrunk(state, escapes && dither::MustShrink(state, dither::kRawFrequency));
        if (escapes) state = dither::PushRaw(state, codes[k] & (dither::kSymbols - 1));
      }
      state = writer.Shrunk(state, state >= ahead[k].limit);
      state = Push(state, ahead[k]);
    }
  }
  states[lane] = state;
  return writer.count();
}

template <int kHalfBits>
__global__ void __launch_bounds__(kDitherThreads)
    EncodeKernel(const __grid_constant__ DitherArgs args) {
  extern __shared__ __align__(16) uint8_t codes[];  // kGroupBlocks x block
  __shared__ GroupAtHand at_hand;
  __shared__ CodingInterval intervals[2 * dither::kOuter];
  const DitherGroup group = GroupAt(args, blockIdx.x);
  for (uint32_t k = threadIdx.x; k < 2 * dither::kOuter; k += kDitherThreads) {
    intervals[k] = ForCoding(kIntervals<kHalfBits>.of_code[k]);
  }
  for (uint32_t turn = threadIdx.x / kWarp; turn < Turns(args, group);
       turn += kDitherThreads / kWarp) {
    QuantizeBlocks<kHalfBits>(args, group, PlaceAt(args, group, turn), codes, &at_hand);
  }
  AwaitKernelBefore();
  LetNextKernelBegin();
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  const int nonfinite = WriteScales(group, &at_hand);
  __syncwarp();
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const DitherScratch scratch(args.groups, args.group_words);
  auto* const words = reinterpret_cast<uint16_t*>(args.scratch_dev + scratch.words) +
                      uint64_t{blockIdx.x} * args.group_words;
  auto* const states =
      reinterpret_cast<uint32_t*>(payload + args.states) + uint64_t{blockIdx.x} * dither::kLanes;
  const uint32_t count =
      CodeGroup<kHalfBits>(args, group, codes, at_hand, intervals, words, states);
  if (threadIdx.x != 0) return;
  reinterpret_cast<int16_t*>(payload + args.exponents)[blockIdx.x] =
      static_cast<int16_t>(at_hand.exponent);
  reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.counts)[blockIdx.x] = count;
  atomicAdd(reinterpret_cast<unsigned long long*>(args.scratch_dev + scratch.sums) +
                blockIdx.x / kDitherCounted,
            static_cast<unsigned long long>(count));
  if (nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(nonfinite));
  }
}

// Returns the sum of a value over all threads of the block, to all of them.
__device__ uint64_t SumOverBlock(uint64_t value) {
  __shared__ uint64_t of_warps[kThreads / kWarp];
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (unsigned w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w];
  return sum;
}

// Each thread block moves the words of one group. The last one also writes the size and the noise.
__global__ void __launch_bounds__(kThreads) FinishKernel(const __grid_constant__ DitherArgs args) {
  AwaitKernelBefore();
  const DitherScratch scratch(args.groups, args.group_words);
  const auto* const sums = reinterpret_cast<const uint64_t*>(args.scratch_dev + scratch.sums);
  const auto* const counts = reinterpret_cast<const uint32_t*>(args.scratch_dev + scratch.counts);
  const uint64_t group = blockIdx.x;
  const uint64_t whole = group / kDitherCounted;
  uint64_t before = 0;
  for (uint64_t k = threadIdx.x; k < whole; k += blockDim.x) before += sums[k];
  for (uint64_t k = whole * kDitherCounted + threadIdx.x; k < group; k += blockDim.x) {
    before += counts[k];
  }
  before = SumOverBlock(before);
  const uint32_t count = counts[group];
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const auto* const from = reinterpret_cast<const uint16_t*>(args.scratch_dev + scratch.words) +
                           group * args.group_words;
  auto* const to = reinterpret_cast<uint16_t*>(payload + args.words) + before;
  for (uint32_t k = threadIdx.x; k < count; k += blockDim.x) to[k] = from[k];
  const uint64_t end = before + count;
  if (threadIdx.x == 0) {
    reinterpret_cast<uint64_t*>(payload + args.ends)[group] = end;
  }
  if (group + 1 < args.groups) return;
  const uint64_t aligned = (end + 7) / 8 * 8;
  if (end + threadIdx.x < aligned) to[count + threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    *reinterpret_cast<uint64_t*>(args.blob_dev + kPayloadBytesOffset) = args.words + 2 * aligned;
  }
  if (threadIdx.x < 4) reinterpret_cast<uint32_t*>(payload)[threadIdx.x] = args.noise[threadIdx.x];
}

template <int kHalfBits>
int Encode(const DitherArgs& args, cudaStream_t stream) {
  Beginning beginning{};
  beginning.header = args.header;
  beginning.blob_dev = args.blob_dev;
  beginning.scratch_dev = args.scratch_dev;
  beginning.scratch_bytes = DitherScratch(args.groups, args.group_words).zeroed;
  beginning.ranges[0] = {args.exponents - 16, args.exponents};
  beginning.ranges[1] = {args.states - 16, args.states};
  if (const int error = Begin(beginning, stream); error != 0) return error;
  const auto groups = static_cast<unsigned>(args.groups);
  if (const int error =
          LaunchNext(EncodeKernel<kHalfBits>,
                     {groups, kDitherThreads, dither::kGroupBlocks * args.block}, stream, args);
      error != 0) {
    return error;
  }
  return LaunchNext(FinishKernel, {groups, kThreads, 0}, stream, args);
}

}  // namespace

int EncodeDither(int device, const DitherArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  return dither::ForHalfBits(args->half_bits,
                             [&]<int kHalfBits>() { return Encode<kHalfBits>(*args, handle); });
}

int DecodeDither(int device, const DitherArgs* args, void* stream);  // decode.cu
const DitherKernels kDitherKernels = {EncodeDither, DecodeDither};

}  // namespace longhaul::codec::cuda
