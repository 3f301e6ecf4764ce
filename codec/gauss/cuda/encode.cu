#include <cfloat>

#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/sample_maxima.cuh"
#include "codec/gauss/cuda/block.cuh"
#include "codec/gauss/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// What is added to q, so that 0 says that there is none.
constexpr int kQOffset = 1024;

// kThreshold by its index, which here is known only at run time.
template <int kBits>
struct ThresholdTable {
  template <int kJ = 1>
  constexpr void Fill() {
    value[kJ] = gauss::kThreshold<kBits, kJ>;
    if constexpr (kJ + 1 < 1 << (kBits - 1)) Fill<kJ + 1>();
  }
  constexpr ThresholdTable() { Fill(); }
  float value[1 << (kBits - 1)] = {};
};
template <int kBits>
__device__ constexpr ThresholdTable<kBits> kThresholds;

// Step 5 as a search by halves: level 0 compares with the middle threshold, level m with one of 2^m
// that the comparisons before it say, each a bit that is 1 where |u| was below. Lane i of the warp
// keeps the threshold for comparisons that ended in the low m bits of i.
template <int kBits>
class Quantizer {
 public:
  __device__ Quantizer() {
    constexpr int kAll = kBits - 1;
#pragma unroll
    for (int level = 1; level < kAll; ++level) {
      const uint32_t path = ~threadIdx.x & ((1u << level) - 1);
      tables_[level] = kThresholds<kBits>.value[(2 * path + 1) << (kAll - 1 - level)];
    }
  }

  // 16 elements in a row, values * factor, to 16 bits of every plane.
  __device__ void Planes(const float* values, float factor, uint32_t (&planes)[kBits]) const {
    float u[kRun];
#pragma unroll
    for (int k = 0; k < kRun; ++k) u[k] = values[k] * factor;
    uint32_t words[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) words[half] = TransposeNibbles(Nibbles(u + 8 * half));
    constexpr int kLow = kBits < 4 ? kBits : 4;
#pragma unroll
    for (int plane = 0; plane < kLow; ++plane) {
      planes[plane] = __byte_perm(words[0], words[1], plane | (plane + 4) << 4);
    }
    if constexpr (kBits > 4) {
      planes[kBits - 1] = 0;
#pragma unroll
      for (int k = kRun - 1; k >= 0; --k) {
        planes[kBits - 1] = Append(planes[kBits - 1], u[k]);
      }
    }
    if constexpr (kBits == 6) {
      planes[4] = 0;
#pragma unroll
      for (int k = kRun - 1; k >= 0; --k) planes[4] = Append(planes[4], Below(u[k], Middle()));
      planes[4] = ~planes[4];
    }
  }

 private:
  static __device__ constexpr float Middle() {
    return gauss::kThreshold<kBits, 1 << (kBits - 2)>;
  }
  // Negative iff |u| is below.
  static __device__ float Below(float u, float threshold) {
    return fabsf(u) - threshold;
  }
  // Bits with a number's sign behind them.
  static __device__ uint32_t Append(uint32_t bits, float value) {
    return __funnelshift_l(__float_as_uint(value), bits, 1);
  }

  // The low four planes of eight elements, as TransposeNibbles wants them.
  __device__ uint32_t Nibbles(const float* u) const {
    uint32_t word = 0;
#pragma unroll
    for (int nibble = 7; nibble >= 0; --nibble) {
      const float value = u[nibble / 2 + nibble % 2 * 4];
      if constexpr (kBits == 6) {
        uint32_t path = Append(0, Below(value, Middle()));
#pragma unroll
        for (int level = 1; level < kBits - 1; ++level) path = Search(value, level, path);
        word = word << 4 | (path & 15);
      } else {
#pragma unroll
        for (int k = kBits - 1; k < 4; ++k) word = Append(word, value);
        word = Append(word, Below(value, Middle()));
#pragma unroll
        for (int level = 1; level < kBits - 1; ++level) word = Search(value, level, word);
      }
    }
    constexpr uint32_t kComparisons = (1u << (kBits < 5 ? kBits - 1 : 4)) - 1;
    return word ^ kComparisons * 0x11111111;
  }
  __device__ uint32_t Search(float value, int level, uint32_t path) const {
    return Append(path,
                  Below(value, __shfl_sync(kAllLanes, tables_[level], static_cast<int>(path))));
  }

  float tables_[kBits] = {};
};

// What steps 1 to 4 give.
struct Normalized {
  int q;
  float inverse_root;
};

// Pairs of halves to numbers.
__device__ inline void Widen(uint32_t dtype, const uint32_t (&words)[kOfLane / 2],
                             float (&values)[kOfLane]) {
#pragma unroll
  for (int k = 0; k < kOfLane / 2; ++k) {
    if (dtype == kBf16) {
      values[2 * k] = __uint_as_float(words[k] << 16);
      values[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000);
    } else {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[k]));
      values[2 * k] = two.x;
      values[2 * k + 1] = two.y;
    }
  }
}

// A lane's elements with their signs changed; zeros where padded. All loads come before what waits
// for the first of them.
__device__ inline void LoadBlock(const TensorArgs& tensor, bool vectorised, const GaussPlace& place,
                                 float (&values)[kOfLane]) {
  uint32_t begins[kRuns];
#pragma unroll
  for (int run = 0; run < kRuns; ++run) begins[run] = RunBegin(place, run);
  const bool whole = vectorised && begins[kRuns - 1] + kRun <= place.count;
  uint32_t signs[kOfLane / 2];
  if (tensor.dtype == kF32) {
    const float* const from = static_cast<const float*>(tensor.data_dev) + place.offset;
    if (whole) {
#pragma unroll
      for (int k = 0; k < kOfLane; k += 4) {
        const float4 four =
            __ldcs(reinterpret_cast<const float4*>(from + begins[k / kRun] + k % kRun));
        values[k] = four.x;
        values[k + 1] = four.y;
        values[k + 2] = four.z;
        values[k + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int k = 0; k < kOfLane; ++k) {
        const uint32_t element = begins[k / kRun] + k % kRun;
        values[k] = element < place.count ? from[element] : 0.0f;
      }
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) LoadSigns(begins[run], signs + run * kRun / 2);
#pragma unroll
    for (int k = 0; k < kOfLane / 2; ++k) {
      values[2 * k] = Signed(values[2 * k], signs[k] << 16);
      values[2 * k + 1] = Signed(values[2 * k + 1], signs[k] & 0x80000000);
    }
    return;
  }
  const uint16_t* const from = static_cast<const uint16_t*>(tensor.data_dev) + place.offset;
  uint32_t words[kOfLane / 2];
  if (whole) {
#pragma unroll
    for (int k = 0; k < kOfLane; k += 8) {
      ToArray(__ldcs(reinterpret_cast<const uint4*>(from + begins[k / kRun] + k % kRun)),
              words + k / 2);
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) LoadSigns(begins[run], signs + run * kRun / 2);
#pragma unroll
    for (int k = 0; k < kOfLane / 2; ++k) words[k] ^= signs[k];
    Widen(tensor.dtype, words, values);
  } else {
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const uint32_t element = begins[k / kRun] + k % kRun;
      const uint32_t half = element < place.count ? from[element] : 0;
      words[k / 2] = k % 2 == 0 ? half : words[k / 2] | half << 16;
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) LoadSigns(begins[run], signs + run * kRun / 2);
#pragma unroll
    for (int k = 0; k < kOfLane / 2; ++k) words[k] ^= signs[k];
    Widen(tensor.dtype, words, values);
  }
}

// Folds halves of a lane's numbers, until so many are left.
template <int kHalf, int kLeft>
__device__ inline void FoldInLane(float (&sums)[kOfLane]) {
#pragma unroll
  for (int k = 0; k < kHalf; ++k) sums[k] = sums[k] + sums[k + kHalf];
  if constexpr (kHalf > kLeft) FoldInLane<kHalf / 2, kLeft>(sums);
}

// Steps 1, 2 and 4 as they are written; scales the values. Where the block has no scale, q is
// kZeroIndex or kNonfiniteIndex and the values become zeros, whose codes are 0.
__device__ inline Normalized NormalizeExactly(const GaussPlace& place, int log2_size,
                                              float (&values)[kOfLane]) {
  float largest = 0;  // NaNs do not show in it
#pragma unroll
  for (const float value : values) largest = fmaxf(largest, fabsf(value));
  for (uint32_t distance = 1; distance < place.lanes; distance *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  }
  const int exponent = FloorLog2(__float_as_uint(largest));
  const ScaleUp scale(1 - exponent);
#pragma unroll
  for (float& value : values) value = scale(value);
  float sums[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) sums[k] = values[k] * values[k];
  FoldInLane<kOfLane / 2, kRun>(sums);
  for (uint32_t distance = place.lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int k = 0; k < kRun; ++k) {
      sums[k] = sums[k] + __shfl_xor_sync(kAllLanes, sums[k], distance);
    }
  }
  FoldInLane<kRun / 2, 1>(sums);
  const bool finite = sums[0] <= FLT_MAX;  // an infinity was multiplied by 0
  if (!finite || largest == 0) {
#pragma unroll
    for (float& value : values) value = 0;
    return {finite ? gauss::kZeroIndex : gauss::kNonfiniteIndex, 0.0f};
  }
  const int root = gauss::RootIndex(sums[0]);
  return {4 * (exponent - 1) + root - 2 * log2_size, gauss::InverseRoot(root)};
}

// The same for values of 16 bits without scaling them, where that cannot make a difference: below
// 2^11 step 1 is exact, and sums of what it scales are the scaled sums. False where it could: then
// nothing has happened. The sum of squares is wrong by less than 2^-18 of it, so it says which
// quarter octave it is in, unless it lies next to a limit.
__device__ inline bool NormalizeQuickly(const GaussPlace& place, int log2_size,
                                        const float (&values)[kOfLane], Normalized* out) {
  float sums[4] = {};
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) sums[k % 4] = __fmaf_rn(values[k], values[k], sums[k % 4]);
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (uint32_t distance = 1; distance < place.lanes; distance *= 2) {
    sum = sum + __shfl_xor_sync(kAllLanes, sum, distance);
  }
  constexpr uint32_t kDoubt = 64;  // units of the sum's last place, more than 2^-18 of it
  const uint32_t fraction = __float_as_uint(sum) & 0x7fffff;
  const bool clear = sum >= 0x1p-60f && sum < 0x1p22f &&
                     fraction - gauss::kFirstQuarter + kDoubt > 2 * kDoubt &&
                     fraction - gauss::kThirdQuarter + kDoubt > 2 * kDoubt;
  const int root = gauss::RootIndex(sum);
  *out = {root - 2 * log2_size, gauss::InverseRoot(root)};
  return clear;
}

// The codes of a warp's blocks, on their way to memory: blocks lie 8 bytes apart, so that lanes
// write to different banks.
template <int kBits>
class Staging {
 public:
  // For a warp. It has the most blocks where these have 64 elements.
  static constexpr uint32_t kBytes = kWarp * kOfLane * kBits / 8 + 8 * kWarp * kOfLane / 64;

  __device__ Staging(const GaussPlace& place, unsigned char* memory)
      : place_(place), stride_(place.size / 8 * kBits + 8), memory_(memory) {}

  __device__ void Put(int run, const uint32_t (&planes)[kBits]) {
    const uint32_t block = threadIdx.x % kWarp / place_.lanes;
    unsigned char* const to = memory_ + block * stride_ + RunBegin(place_, run) / 8;
#pragma unroll
    for (int plane = 0; plane < kBits; ++plane) {
      *reinterpret_cast<uint16_t*>(to + plane * (place_.size / 8)) =
          static_cast<uint16_t>(planes[plane]);
    }
  }

  __device__ void Write(unsigned char* payload) const {
    __syncwarp();
    const int shift = __ffs(static_cast<int>(place_.size / 64)) - 1;  // 8 bytes each of a plane
    constexpr uint32_t kAll = kWarp * kOfLane * kBits / 64;
#pragma unroll
    for (uint32_t first = 0; first < kAll; first += kWarp) {
      const uint32_t k = first + threadIdx.x % kWarp;
      const uint32_t block = (k >> shift) / kBits;
      const uint32_t rest = k - ((block * kBits) << shift);
      const uint64_t planes =
          __shfl_sync(kAllLanes, place_.planes, static_cast<int>(block * place_.lanes));
      if (k < kAll && block < place_.blocks) {
        *reinterpret_cast<uint2*>(payload + planes + 8 * rest) =
            *reinterpret_cast<const uint2*>(memory_ + block * stride_ + 8 * rest);
      }
    }
  }

 private:
  const GaussPlace& place_;
  const uint32_t stride_;
  unsigned char* const memory_;
};

// Leaves q for ScaleKernel.
__device__ inline void KeepIndex(const GaussArgs& args, const GaussPlace& place, int q) {
  const GaussScratch scratch(args.tensor.samples, 0);
  if (place.lane == 0 && place.there) {
    auto* const indexes = reinterpret_cast<int16_t*>(args.scratch_dev + scratch.indexes);
    indexes[place.token * args.blocks_of_token.value + place.block] = static_cast<int16_t>(q);
  }
  const bool scaled = place.there && q != gauss::kZeroIndex && q != gauss::kNonfiniteIndex;
  const auto mine = scaled ? static_cast<uint32_t>(q + kQOffset) : 0;
  const uint32_t sample = place.token / args.tokens;
  const SampleMaxima maxima(args.scratch_dev + scratch.largest);
  const uint32_t of_warp = __reduce_max_sync(kAllLanes, mine);
  const uint32_t first = __shfl_sync(kAllLanes, sample, 0);
  if (__all_sync(kAllLanes, !place.there || sample == first)) {
    if (threadIdx.x % kWarp == 0 && of_warp != 0) maxima.Raise(first, blockIdx.x, of_warp);
  } else if (place.lane == 0 && mine != 0) {
    maxima.Raise(sample, blockIdx.x, mine);
  }
}

template <int kBits>
__global__ void __launch_bounds__(kGaussThreads)
    EncodeKernel(const __grid_constant__ GaussArgs args, uint32_t whole_grid) {
  __shared__ alignas(8) unsigned char staged[kWarps][Staging<kBits>::kBytes];
  const GaussPlace place = PlaceOfLane(args, whole_grid);
  float values[kOfLane];
  LoadBlock(args.tensor, Vectorised(args.tensor), place, values);
  AwaitKernelBefore();
  const Quantizer<kBits> quantizer;
  const int log2_size = __ffs(static_cast<int>(place.size)) - 1;
  Normalized normalized;
  const bool quick = args.tensor.dtype != kF32 &&
                     __all_sync(kAllLanes, NormalizeQuickly(place, log2_size, values, &normalized));
  if (!quick) normalized = NormalizeExactly(place, log2_size, values);
  TransformBlock(place.lanes, values);
  Staging<kBits> staging(place, staged[threadIdx.x / kWarp]);
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    uint32_t planes[kBits];
    quantizer.Planes(values + run * kRun, normalized.inverse_root, planes);
    staging.Put(run, planes);
  }
  staging.Write(args.blob_dev + kHeaderBytes);
  KeepIndex(args, place, normalized.q);
}

// Step 6.
__global__ void __launch_bounds__(kThreads)
    ScaleKernel(const __grid_constant__ GaussArgs args, uint64_t blocks) {
  AwaitKernelBefore();
  const GaussScratch scratch(args.tensor.samples, 0);
  const SampleMaxima maxima(args.scratch_dev + scratch.largest);
  const uint64_t thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = thread < blocks;
  const uint32_t index = there ? static_cast<uint32_t>(thread) : 0;
  const uint32_t token = index / args.blocks_of_token;
  const uint32_t sample = token / args.tokens;
  const uint32_t largest = maxima.Of(sample);
  bool nonfinite = false;
  if (there) {
    const int exponent = largest == 0 ? 0 : gauss::ExponentOf(static_cast<int>(largest) - kQOffset);
    const int q = reinterpret_cast<const int16_t*>(args.scratch_dev + scratch.indexes)[index];
    unsigned char* const payload = args.blob_dev + kHeaderBytes;
    payload[args.scales + index] = gauss::ScaleByte(q, exponent);
    if (token == sample * args.tokens.value && index == token * args.blocks_of_token.value) {
      reinterpret_cast<int16_t*>(payload)[sample] = static_cast<int16_t>(exponent);
    }
    nonfinite = q == gauss::kNonfiniteIndex;
  }
  const int count = __syncthreads_count(nonfinite);
  if (count != 0 && threadIdx.x == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
              static_cast<unsigned long long>(count));
  }
}

template <int kBits>
int Encode(const GaussArgs& args, cudaStream_t stream) {
  const GaussScratch scratch(args.tensor.samples, 0);
  Beginning beginning{};
  beginning.header = args.header;
  beginning.blob_dev = args.blob_dev;
  beginning.scratch_dev = args.scratch_dev;
  beginning.scratch_bytes = scratch.zeroed;
  beginning.ranges[0] = {0, args.scales};
  beginning.ranges[1] = {args.codes - 16, args.codes};
  beginning.ranges[2] = {args.end - 16, args.end};
  if (const int error = Begin(beginning, stream); error != 0) return error;
  const GaussGrid grid(args);
  if (const int error =
          LaunchNext(EncodeKernel<kBits>, {grid.all, kGaussThreads, 0}, stream, args, grid.whole);
      error != 0) {
    return error;
  }
  const uint64_t blocks = args.whole_blocks + args.last_blocks;
  return LaunchNext(ScaleKernel, {static_cast<uint32_t>((blocks - 1) / kThreads + 1), kThreads, 0},
                    stream, args, blocks);
}

}  // namespace

int EncodeGauss(int device, const GaussArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  switch (args->bits) {
    case 2:
      return Encode<2>(*args, handle);
    case 3:
      return Encode<3>(*args, handle);
    case 4:
      return Encode<4>(*args, handle);
    case 5:
      return Encode<5>(*args, handle);
    default:
      return Encode<6>(*args, handle);
  }
}

int DecodeGauss(int device, const GaussArgs* args, void* stream);  // decode.cu
const GaussKernels kGaussKernels = {EncodeGauss, DecodeGauss};

}  // namespace longhaul::codec::cuda
