#include "codec/aqsgd/cuda/kernels.h"
#include "codec/aqsgd/cuda/sample.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

// By one block: checks what the blob says of its samples, and finds their bodies. Where anything is
// impossible, nothing of the blob is believed.
__global__ void __launch_bounds__(kThreads) CheckKernel(const __grid_constant__ AqsgdArgs args) {
  const AqsgdSamples samples(args);
  const unsigned char* const payload = samples.Payload();
  const auto kind_of = [&](uint32_t sample) {
    return static_cast<Kind>(payload[args.kinds + sample]);
  };
  const auto exponent_of = [&](uint32_t sample) -> int {
    return reinterpret_cast<const int16_t*>(payload + args.exponents)[sample];
  };
  const auto is_difference = [&](uint32_t sample) { return kind_of(sample) == Kind::kDifference; };
  __shared__ uint32_t differences;
  if (threadIdx.x == 0) differences = 0;
  __syncthreads();
  bool possible = true;
  for (uint64_t k = threadIdx.x; k < args.tensor.samples; k += kThreads) {
    const auto sample = static_cast<uint32_t>(k);
    const aqsgd::Entry entry = samples.EntryOf(sample);
    if (is_difference(sample)) atomicAdd(&differences, 1u);
    possible = possible && reinterpret_cast<const uint64_t*>(payload)[sample] == entry.id &&
               reinterpret_cast<const uint64_t*>(payload + args.checks)[sample] == entry.check &&
               aqsgd::KindPossible(kind_of(sample), samples.Remembers(), entry.check != 0) &&
               aqsgd::ExponentPossible(kind_of(sample), exponent_of(sample));
  }
  __syncthreads();
  const bool fits =
      BodyBegin(args, args.tensor.samples, differences, differences) == args.payload_bytes;
  if (fits && differences > 0) {
    const auto* const scales = reinterpret_cast<const uint16_t*>(payload + args.variable);
    for (uint64_t k = threadIdx.x; k < args.tensor.channels; k += kThreads) {
      possible = possible && scales[k] <= aqsgd::kLargestHalfBits;
    }
  }
  const bool all = __syncthreads_and(possible && fits) != 0;
  if (!all && threadIdx.x == 0) atomicOr(args.fault_dev, 1u);
  ForSamplesInOrder(args.tensor.samples, is_difference,
                    [&](uint32_t sample, bool /*difference*/, uint32_t before) {
                      samples.bodies[sample] = BodyBegin(args, sample, before, differences);
                      samples.kinds[sample] =
                          all ? static_cast<uint32_t>(kind_of(sample)) : kNoKind;
                      samples.exponents[sample] = all ? exponent_of(sample) : 0;
                    });
}

__device__ inline void UnpackCodes(const unsigned char* planes, uint32_t bits,
                                   uint32_t (&codes)[kPerLane]) {
#pragma unroll
  for (uint32_t& code : codes) code = 0;
  for (uint32_t bit = 0; bit < bits; bit += 4) {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      if (bit + k < bits) {
        const uint32_t two =
            *reinterpret_cast<const uint16_t*>(planes + (bit + k) * (aqsgd::kTile / 8));
        words[0] |= (two & 0xff) << 8 * k;
        words[1] |= (two >> 8) << 8 * k;
      }
    }
    const uint32_t low = TransposeNibbles(words[0]);
    const uint32_t high = TransposeNibbles(words[1]);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      codes[k] |= ((k < 8 ? low : high) >> NibbleShift(k % 8) & 15) << bit;
    }
  }
}

// Halves times 2^-exponent to the tensor; those that are not finite give NaN.
__device__ inline void StoreActivation(const AqsgdArgs& args, bool vectorised,
                                       const AqsgdTile& tile, int exponent,
                                       const uint16_t (&halves)[kPerLane], bool finite) {
  const uint32_t lane = threadIdx.x % kAqsgdLanes;
  float values[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) values[k] = FromHalf(halves[k]);
  if (finite) {
    StoreLane(args.tensor, vectorised, tile.place, lane, true, exponent, values);
    return;
  }
  const ScaleBack scale_back(exponent);
  const float limit = LargestFinite(args.tensor.dtype);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const uint32_t element = lane * kPerLane + k;
    if (element >= tile.place.count) continue;
    const bool is_finite = (halves[k] & 0x7c00) != 0x7c00;
    const float value = is_finite ? fminf(fmaxf(scale_back(values[k]), -limit), limit)
                                  : __uint_as_float(0x7fc00000);
    StoreElement(value, args.tensor.data_dev, args.tensor.dtype, tile.place.offset + element);
  }
}

__device__ inline void DecodeDifference(const AqsgdArgs& args, const AqsgdSamples& samples,
                                        const AqsgdTile& tile, bool vectorised) {
  const uint32_t first = threadIdx.x % kAqsgdLanes * kPerLane;
  const unsigned char* const payload = samples.Payload();
  uint32_t codes[kPerLane];
  UnpackCodes(payload + samples.bodies[tile.sample] +
                  tile.tile_of_sample * args.bits * (aqsgd::kTile / 8) + first / 8,
              args.bits, codes);
  uint16_t* const elements = samples.ElementsOf(tile.sample) + tile.in_sample;
  uint16_t message[kPerLane];
  LoadHalves(elements, first, tile.place.count, message);
  uint16_t scales[kPerLane];
  LoadHalves(reinterpret_cast<const uint16_t*>(payload + args.variable) +
                 tile.tile_of_token * aqsgd::kTile,
             first, tile.place.count, scales);
  const float down = Pow2(-samples.exponents[tile.sample]);
  const auto offset = static_cast<int>(1u << (args.bits - 1));
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const auto code = static_cast<float>(static_cast<int>(codes[k]) - offset);
    message[k] = UpdatedHalf(message[k], code * FromHalf(scales[k]) * down);
  }
  StoreHalves(message, first, tile.place.count, elements);
  StoreActivation(args, vectorised, tile, samples.RecordExponent(tile.sample), message, true);
}

__device__ inline void DecodeWhole(const AqsgdArgs& args, const AqsgdSamples& samples,
                                   const AqsgdTile& tile, bool vectorised) {
  const uint32_t first = threadIdx.x % kAqsgdLanes * kPerLane;
  const int exponent = samples.exponents[tile.sample];
  const unsigned char* const body = samples.Payload() + samples.bodies[tile.sample];
  uint16_t halves[kPerLane];
  LoadHalves(reinterpret_cast<const uint16_t*>(body) + tile.in_sample, first, tile.place.count,
             halves);
  bool finite = true;
#pragma unroll
  for (const uint16_t half : halves) finite = finite && (half & 0x7c00) != 0x7c00;
  StoreActivation(args, vectorised, tile, exponent, halves, finite);
  if (samples.kinds[tile.sample] != static_cast<uint32_t>(Kind::kStored)) return;
  if (!finite) atomicOr(args.fault_dev, 1u);
  StoreHalves(halves, first, tile.place.count, samples.ElementsOf(tile.sample) + tile.in_sample);
  if (tile.last && first == 0) FinishRecord(args, exponent, samples.RecordOf(tile.sample));
}

__global__ void __launch_bounds__(kThreads) DecodeKernel(const __grid_constant__ AqsgdArgs args) {
  const AqsgdSamples samples(args);
  const bool vectorised = Vectorised(args.tensor);
  const uint64_t tiles =
      uint64_t{args.tensor.samples} * args.tensor.tokens * args.tiles_per_token.value;
  const uint64_t stride = uint64_t{gridDim.x} * (kThreads / kAqsgdLanes);
  for (uint64_t index = blockIdx.x * uint64_t{kThreads / kAqsgdLanes} + threadIdx.x / kAqsgdLanes;
       index < tiles; index += stride) {
    const AqsgdTile tile = TileOf(args, static_cast<uint32_t>(index));
    const uint32_t kind = samples.kinds[tile.sample];
    if (kind == static_cast<uint32_t>(Kind::kDifference)) {
      DecodeDifference(args, samples, tile, vectorised);
    } else if (kind != kNoKind) {
      DecodeWhole(args, samples, tile, vectorised);
    } else {
      float values[kPerLane] = {};
      StoreLane(args.tensor, vectorised, tile.place, threadIdx.x % kAqsgdLanes, false, 0, values);
    }
  }
}

}  // namespace

int DecodeAqsgd(int device, const AqsgdArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  CheckKernel<<<1, kThreads, 0, handle>>>(*args);
  if (const int error = Launched(); error != 0) return error;
  const uint64_t threads = uint64_t{args->tensor.samples} * args->tensor.tokens *
                           args->tiles_per_token.value * kAqsgdLanes;
  constexpr uint64_t kMostBlocks = 1u << 30;
  const uint64_t blocks = (threads + kThreads - 1) / kThreads;
  DecodeKernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
                 handle>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
