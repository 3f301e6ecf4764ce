#include "codec/aqsgd/cuda/kernels.h"
#include "codec/aqsgd/cuda/sample.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

// Tokens of which a warp finds the maxima of its channels before others hear of them.
constexpr uint32_t kTokensAtOnce = 8;
constexpr uint32_t kTilesOfWarp = kWarp / kAqsgdLanes;

// Maxima of |x| and, where there is a record, of |x 2^c - m|, as if all samples were differences.
__global__ void __launch_bounds__(kThreads) MeasureKernel(const __grid_constant__ AqsgdArgs args) {
  const AqsgdSamples samples(args);
  const uint32_t groups = (args.tiles_per_token.value - 1) / kTilesOfWarp + 1;
  const uint32_t chunks = (args.tensor.tokens - 1) / kTokensAtOnce + 1;
  const uint64_t items = uint64_t{args.tensor.samples} * chunks * groups;
  const uint64_t stride = uint64_t{gridDim.x} * (kThreads / kWarp);
  const bool vectorised = Vectorised(args.tensor);
  const uint32_t first = threadIdx.x % kAqsgdLanes * kPerLane;
  for (uint64_t item = blockIdx.x * uint64_t{kThreads / kWarp} + threadIdx.x / kWarp; item < items;
       item += stride) {
    const uint64_t slice = item / groups;
    const auto sample = static_cast<uint32_t>(slice / chunks);
    const auto token = static_cast<uint32_t>(slice - uint64_t{sample} * chunks) * kTokensAtOnce;
    const uint32_t end = min(args.tensor.tokens - token, kTokensAtOnce) + token;
    const uint32_t tile = static_cast<uint32_t>(item - slice * groups) * kTilesOfWarp +
                          threadIdx.x % kWarp / kAqsgdLanes;
    const bool there = tile < args.tiles_per_token.value;
    const bool has_record = samples.EntryOf(sample).check != 0;
    const ScaleUp scale_up(has_record ? samples.RecordExponent(sample) : 0);
    uint32_t largest = 0;
    uint32_t nonfinite = 0;
    float differences[kPerLane] = {};
    for (uint32_t k = token; k < end; ++k) {
      const uint64_t row = uint64_t{sample} * args.tensor.tokens + k;
      const TilePlace place =
          there ? Place(args.tensor, static_cast<uint32_t>(row), tile, aqsgd::kTile)
                : TilePlace{0, 0};
      Lane mine;
      LoadLane(args.tensor, vectorised, place, InARow(threadIdx.x % kAqsgdLanes), &mine);
#pragma unroll
      for (const float value : mine.values) {
        const uint32_t bits = __float_as_uint(value) & 0x7fffffff;
        nonfinite += bits < kF32Infinity ? 0 : 1;
        largest = bits < kF32Infinity ? max(largest, bits) : largest;
      }
      if (!has_record) continue;
      uint16_t message[kPerLane];
      LoadHalves(
          samples.ElementsOf(sample) + uint64_t{k} * args.tensor.channels + tile * aqsgd::kTile,
          first, place.count, message);
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) {
        const float magnitude = fabsf(scale_up(mine.values[e]) - FromHalf(message[e]));
        differences[e] = magnitude > differences[e] ? magnitude : differences[e];
      }
    }
    largest = __reduce_max_sync(kAllLanes, largest);
    nonfinite = __reduce_add_sync(kAllLanes, nonfinite);
    uint32_t largest_difference = 0;
    uint32_t* const maxima = samples.maxima + uint64_t{sample} * args.tensor.channels;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const uint32_t bits = __float_as_uint(differences[e]);
      largest_difference = max(largest_difference, bits);
      const uint32_t channel = tile * aqsgd::kTile + first + e;
      // Most are below what was seen already: reading first spares their atomics.
      if (there && channel < args.tensor.channels && bits > __ldcg(maxima + channel)) {
        atomicMax(maxima + channel, bits);
      }
    }
    largest_difference = __reduce_max_sync(kAllLanes, largest_difference);
    if (threadIdx.x % kWarp != 0) continue;
    atomicMax(samples.largest + sample, largest);
    atomicMax(samples.largest_difference + sample, largest_difference);
    if (nonfinite != 0) {
      atomicAdd(samples.nonfinite + sample, static_cast<unsigned long long>(nonfinite));
    }
  }
}

__device__ inline Kind KindOfSample(const AqsgdSamples& samples, uint32_t sample) {
  const bool has_record = samples.EntryOf(sample).check != 0;
  return aqsgd::KindOf(samples.Remembers(), samples.nonfinite[sample] == 0, has_record,
                       has_record ? samples.RecordExponent(sample) : 0, samples.largest[sample]);
}

// By one block: the sections before the scales, the payload's size, and where bodies begin.
__device__ void WriteFront(const AqsgdArgs& args, const AqsgdSamples& samples) {
  const auto is_difference = [&](uint32_t sample) {
    return KindOfSample(samples, sample) == Kind::kDifference;
  };
  __shared__ uint32_t differences;
  if (threadIdx.x == 0) differences = 0;
  __syncthreads();
  for (uint64_t sample = threadIdx.x; sample < args.tensor.samples; sample += kThreads) {
    if (is_difference(static_cast<uint32_t>(sample))) atomicAdd(&differences, 1u);
  }
  __syncthreads();
  unsigned char* const payload = samples.Payload();
  ForSamplesInOrder(
      args.tensor.samples, is_difference, [&](uint32_t sample, bool difference, uint32_t before) {
        const Kind kind = KindOfSample(samples, sample);
        const int exponent = difference
                                 ? aqsgd::DifferenceExponent(samples.largest_difference[sample])
                                 : SampleExponent(samples.largest[sample], aqsgd::kTopExponent);
        const aqsgd::Entry entry = samples.EntryOf(sample);
        reinterpret_cast<uint64_t*>(payload)[sample] = entry.id;
        reinterpret_cast<uint64_t*>(payload + args.checks)[sample] = entry.check;
        payload[args.kinds + sample] = static_cast<unsigned char>(kind);
        reinterpret_cast<int16_t*>(payload + args.exponents)[sample] =
            static_cast<int16_t>(exponent);
        samples.bodies[sample] = BodyBegin(args, sample, before, differences);
        samples.kinds[sample] = static_cast<uint32_t>(kind);
        samples.exponents[sample] = exponent;
        if (samples.nonfinite[sample] != 0) {
          atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset),
                    samples.nonfinite[sample]);
        }
      });
  if (threadIdx.x == 0) {
    *reinterpret_cast<uint64_t*>(args.blob_dev + kPayloadBytesOffset) =
        BodyBegin(args, args.tensor.samples, differences, differences);
  }
}

// A thread a channel, up to whole tiles.
__global__ void __launch_bounds__(kThreads) DecideKernel(const __grid_constant__ AqsgdArgs args) {
  const AqsgdSamples samples(args);
  if (blockIdx.x == 0) WriteFront(args, samples);
  const uint64_t channel = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = channel < args.tensor.channels;
  // 2^g of differences, 0 of other samples.
  __shared__ float ups[kThreads];
  bool any = false;
  float largest = 0;
  for (uint64_t first = 0; first < args.tensor.samples; first += kThreads) {
    const uint64_t mine = first + threadIdx.x;
    const bool difference = mine < args.tensor.samples &&
                            KindOfSample(samples, static_cast<uint32_t>(mine)) == Kind::kDifference;
    ups[threadIdx.x] =
        difference ? Pow2(aqsgd::DifferenceExponent(samples.largest_difference[mine])) : 0.0f;
    any = __syncthreads_or(difference) != 0 || any;
    const auto count =
        there ? static_cast<uint32_t>(min(args.tensor.samples - first, uint64_t{kThreads})) : 0;
    const uint32_t* const maxima = samples.maxima + first * args.tensor.channels + channel;
#pragma unroll 8
    for (uint32_t k = 0; k < count; ++k) {
      const float of_sample = __uint_as_float(maxima[uint64_t{k} * args.tensor.channels]) * ups[k];
      largest = of_sample > largest ? of_sample : largest;
    }
    __syncthreads();
  }
  if (channel >= uint64_t{args.tiles_per_token.value} * aqsgd::kTile) return;
  const auto top = static_cast<float>((1 << (args.bits - 1)) - 1);
  const uint16_t stored = F32ToF16(largest / top);
  const float scale = F16ToF32(stored);
  samples.scales[channel] = scale;
  samples.reciprocals[channel] = __frcp_rn(scale);
  if (any && 2 * channel < args.scales_bytes) {
    reinterpret_cast<uint16_t*>(samples.Payload() + args.variable)[channel] = stored;
  }
}

// Codes of a lane to two bytes of every plane.
__device__ inline void PackCodes(const uint32_t (&codes)[kPerLane], uint32_t bits,
                                 unsigned char* planes) {
  for (uint32_t bit = 0; bit < bits; bit += 4) {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      words[k / 8] |= (codes[k] >> bit & 15) << NibbleShift(k % 8);
    }
    const uint32_t low = TransposeNibbles(words[0]);
    const uint32_t high = TransposeNibbles(words[1]);
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      if (bit + k < bits) {
        *reinterpret_cast<uint16_t*>(planes + (bit + k) * (aqsgd::kTile / 8)) =
            static_cast<uint16_t>(__byte_perm(low, high, k | (k + 4) << 4));
      }
    }
  }
}

__device__ inline void EncodeDifference(const AqsgdArgs& args, const AqsgdSamples& samples,
                                        const AqsgdTile& tile, const float (&values)[kPerLane]) {
  const uint32_t first = threadIdx.x % kAqsgdLanes * kPerLane;
  const int exponent = samples.exponents[tile.sample];
  const ScaleUp scale_up(samples.RecordExponent(tile.sample));
  const float up = Pow2(exponent);
  const float down = Pow2(-exponent);
  const uint32_t offset = 1u << (args.bits - 1);
  const auto limit = static_cast<float>(offset - 1);
  uint16_t* const elements = samples.ElementsOf(tile.sample) + tile.in_sample;
  uint16_t message[kPerLane];
  LoadHalves(elements, first, tile.place.count, message);
  float scales[kPerLane];
  float reciprocals[kPerLane];
  LoadFloats(samples.scales + tile.tile_of_token * aqsgd::kTile + first, scales);
  LoadFloats(samples.reciprocals + tile.tile_of_token * aqsgd::kTile + first, reciprocals);
  uint32_t codes[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const float scale = scales[k];
    const float difference = (scale_up(values[k]) - FromHalf(message[k])) * up;
    float value = Divide(difference, scale, reciprocals[k]);
    value = fminf(fmaxf(value, -limit), limit);
    value = scale > 0 ? value : 0.0f;
    const auto code = static_cast<int32_t>(__float_as_uint(value + kRoundMagic) - kRoundMagicBits);
    codes[k] = static_cast<uint32_t>(code) + offset;
    message[k] = UpdatedHalf(message[k], static_cast<float>(code) * scale * down);
  }
  unsigned char* const body = samples.Payload() + samples.bodies[tile.sample];
  PackCodes(codes, args.bits,
            body + tile.tile_of_sample * args.bits * (aqsgd::kTile / 8) + first / 8);
  StoreHalves(message, first, tile.place.count, elements);
  if (!tile.last || first != 0) return;
  for (uint64_t k = (tile.tile_of_sample + 1) * args.bits * (aqsgd::kTile / 8);
       k < args.difference_bytes; ++k) {
    body[k] = 0;
  }
}

__device__ inline void EncodeWhole(const AqsgdArgs& args, const AqsgdSamples& samples,
                                   const AqsgdTile& tile, const float (&values)[kPerLane]) {
  const uint32_t first = threadIdx.x % kAqsgdLanes * kPerLane;
  const int exponent = samples.exponents[tile.sample];
  const ScaleUp scale_up(exponent);
  uint16_t halves[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint16_t half = ToHalf(scale_up(values[k]));
    halves[k] = (half & 0x7c00) == 0x7c00 ? kF16Nan : half;
  }
  unsigned char* const body = samples.Payload() + samples.bodies[tile.sample];
  StoreHalves(halves, first, tile.place.count, reinterpret_cast<uint16_t*>(body) + tile.in_sample);
  const bool last = tile.last && first == 0;
  if (last) {
    for (uint64_t k = 2 * SampleElements(args); k < args.whole_bytes; ++k) body[k] = 0;
  }
  if (samples.kinds[tile.sample] != static_cast<uint32_t>(Kind::kStored)) return;
  StoreHalves(halves, first, tile.place.count, samples.ElementsOf(tile.sample) + tile.in_sample);
  if (last) FinishRecord(args, exponent, samples.RecordOf(tile.sample));
}

__global__ void __launch_bounds__(kThreads) EncodeKernel(const __grid_constant__ AqsgdArgs args) {
  const AqsgdSamples samples(args);
  const bool vectorised = Vectorised(args.tensor);
  const uint64_t tiles =
      uint64_t{args.tensor.samples} * args.tensor.tokens * args.tiles_per_token.value;
  const uint64_t stride = uint64_t{gridDim.x} * (kThreads / kAqsgdLanes);
  for (uint64_t index = blockIdx.x * uint64_t{kThreads / kAqsgdLanes} + threadIdx.x / kAqsgdLanes;
       index < tiles; index += stride) {
    const AqsgdTile tile = TileOf(args, static_cast<uint32_t>(index));
    Lane mine;
    LoadLane(args.tensor, vectorised, tile.place, InARow(threadIdx.x % kAqsgdLanes), &mine);
    if (samples.kinds[tile.sample] == static_cast<uint32_t>(Kind::kDifference)) {
      EncodeDifference(args, samples, tile, mine.values);
    } else {
      EncodeWhole(args, samples, tile, mine.values);
    }
  }
}

unsigned Blocks(uint64_t threads) {
  constexpr uint64_t kMost = 1u << 30;
  const uint64_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

}  // namespace

int EncodeAqsgd(int device, const AqsgdArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  const TensorArgs& tensor = args->tensor;
  Beginning beginning{};
  beginning.header = args->header;
  beginning.blob_dev = args->blob_dev;
  beginning.scratch_dev = args->scratch_dev;
  beginning.scratch_bytes = AqsgdScratch(tensor.samples, tensor.channels).zeroed;
  beginning.ranges[0] = {0, args->variable};
  if (const int error = Begin(beginning, handle); error != 0) return error;
  const uint64_t groups = (args->tiles_per_token.value - 1) / kTilesOfWarp + 1;
  const uint64_t chunks = (tensor.tokens - 1) / kTokensAtOnce + 1;
  MeasureKernel<<<Blocks(tensor.samples * chunks * groups * kWarp), kThreads, 0, handle>>>(*args);
  if (const int error = Launched(); error != 0) return error;
  const uint64_t tiles_per_token = args->tiles_per_token.value;
  DecideKernel<<<Blocks(tiles_per_token * aqsgd::kTile), kThreads, 0, handle>>>(*args);
  if (const int error = Launched(); error != 0) return error;
  const uint64_t tiles = uint64_t{tensor.samples} * tensor.tokens * tiles_per_token;
  EncodeKernel<<<Blocks(tiles * kAqsgdLanes), kThreads, 0, handle>>>(*args);
  return Launched();
}

int DecodeAqsgd(int device, const AqsgdArgs* args, void* stream);  // decode.cu
const AqsgdKernels kAqsgdKernels = {EncodeAqsgd, DecodeAqsgd};

}  // namespace longhaul::codec::cuda
