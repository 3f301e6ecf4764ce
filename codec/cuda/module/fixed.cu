#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr int kTopExponent = 12;

// The paddings of the sections, before anything else is written, and the samples' maxima.
__global__ void BeginKernel(FixedArgs args) {
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t k = first; k < args.tensor.samples; k += stride) args.scratch_dev[k] = 0;
  for (uint64_t k = first; k < args.scales; k += stride) payload[k] = 0;
  if (first < 16) {
    payload[args.codes - 16 + first] = 0;
    payload[args.end - 16 + first] = 0;
  }
  if (first < 8) {
    reinterpret_cast<uint64_t*>(args.blob_dev)[first] = args.header.words[first];
  }
}

// scratch[sample]: the largest magnitude of its finite tiles, which no order changes.
template <int kPerLane>
__global__ void MaximumKernel(FixedArgs args) {
  for (uint64_t tile = WarpIndex(); tile < args.tiles; tile += WarpCount()) {
    const TilePlace place = Place(args.tensor, args.tiles_per_token, kPerLane * kWarp, tile);
    float values[kPerLane];
    LoadTile<kPerLane>(args.tensor, place, values);
    const uint32_t largest = LargestMagnitude<kPerLane>(values);
    uint32_t* const maximum = args.scratch_dev + place.sample;
    // Most tiles are below what was seen already: reading first spares their atomics.
    if (threadIdx.x % kWarp == 0 && largest < kF32Infinity &&
        largest > *static_cast<volatile uint32_t*>(maximum)) {
      atomicMax(maximum, largest);
    }
  }
}

// Steps of format.h for one element: its code.
__device__ inline int32_t Quantize(float value, float scale, int top, bool stochastic,
                                   const uint32_t* noise, uint64_t element) {
  const auto limit = static_cast<float>(top);
  value = value / scale;
  value = value < -limit ? -limit : value;
  value = value > limit ? limit : value;
  if (!stochastic) {
    return static_cast<int32_t>(std::bit_cast<uint32_t>(value + kRoundMagic) - kRoundMagicBits);
  }
  const float sum = value + Noise(noise, element);
  const auto toward_zero = static_cast<int32_t>(sum);
  const int32_t floor = toward_zero - (static_cast<float>(toward_zero) > sum ? 1 : 0);
  return floor > top ? top : floor;
}

template <int kPerLane>
__global__ void EncodeKernel(FixedArgs args) {
  constexpr uint32_t kTile = kPerLane * kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const auto bits = static_cast<int>(args.bits);
  const int top = (1 << (bits - 1)) - 1;
  const bool stochastic = args.stochastic != 0;
  const uint64_t sample_tiles = args.tiles_per_token * args.tensor.tokens;
  unsigned nonfinite = 0;
  for (uint64_t tile = WarpIndex(); tile < args.tiles; tile += WarpCount()) {
    const TilePlace place = Place(args.tensor, args.tiles_per_token, kTile, tile);
    float values[kPerLane];
    LoadTile<kPerLane>(args.tensor, place, values);
    const int exponent = SampleExponent(args.scratch_dev[place.sample], kTopExponent);
    const ScaleUp scale_up(exponent);
    const uint32_t largest = LargestMagnitude<kPerLane>(values);
    uint16_t stored = kF16Nan;
    float scale = 0;
    if (largest < kF32Infinity) {
      const float exact = scale_up(std::bit_cast<float>(largest)) / static_cast<float>(top);
      stored = stochastic ? F32ToF16Up(exact) : F32ToF16(exact);
      scale = F16ToF32(stored);
    } else {
      ++nonfinite;
    }
    if (lane == 0) {
      reinterpret_cast<uint16_t*>(payload + args.scales)[tile] = stored;
      if (tile % sample_tiles == 0) {
        reinterpret_cast<int16_t*>(payload)[place.sample] = static_cast<int16_t>(exponent);
      }
    }
    uint32_t* const planes =
        reinterpret_cast<uint32_t*>(payload + args.codes) + tile * bits * kPerLane;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      int32_t code = 0;
      if (scale > 0) {
        code = Quantize(scale_up(values[j]), scale, top, stochastic, args.noise,
                        tile * kTile + lane + kWarp * j);
      }
      const auto biased = static_cast<uint32_t>(code + top + 1);
      uint32_t mine = 0;  // lane b writes plane b
      for (int bit = 0; bit < bits; ++bit) {
        const uint32_t plane = __ballot_sync(kAllLanes, (biased >> bit) & 1);
        mine = static_cast<int>(lane) == bit ? plane : mine;
      }
      if (static_cast<int>(lane) < bits) planes[lane * kPerLane + j] = mine;
    }
  }
  if (lane == 0 && nonfinite != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset), nonfinite);
  }
}

template <int kPerLane>
__global__ void DecodeKernel(FixedArgs args) {
  constexpr uint32_t kTile = kPerLane * kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const auto bits = static_cast<int>(args.bits);
  for (uint64_t tile = WarpIndex(); tile < args.tiles; tile += WarpCount()) {
    const TilePlace place = Place(args.tensor, args.tiles_per_token, kTile, tile);
    const int exponent = reinterpret_cast<const int16_t*>(payload)[place.sample];
    const uint16_t stored = reinterpret_cast<const uint16_t*>(payload + args.scales)[tile];
    const bool possible = exponent >= kMinExponent && exponent <= kMaxExponent;
    if (!possible && lane == 0) atomicOr(args.fault_dev, 1u);
    const bool finite = possible && (stored & 0x7c00) != 0x7c00;
    const ScaleBack scale_back(possible ? exponent : 0);
    const float scale = F16ToF32(stored);
    const uint32_t* const planes =
        reinterpret_cast<const uint32_t*>(payload + args.codes) + tile * bits * kPerLane;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const uint32_t mine = static_cast<int>(lane) < bits ? planes[lane * kPerLane + j] : 0;
      int32_t code = 0;
      for (int bit = 0; bit < bits; ++bit) {
        code |= static_cast<int32_t>((__shfl_sync(kAllLanes, mine, bit) >> lane) & 1) << bit;
      }
      code -= 1 << (bits - 1);
      float value = scale_back(static_cast<float>(code) * scale);
      if (!finite) value = std::bit_cast<float>(0x7fc00000u);
      const unsigned k = lane + kWarp * j;
      if (k < place.count) {
        StoreClamped(value, args.tensor.data_dev, args.tensor.dtype, place.offset + k);
      }
    }
  }
}

template <int kPerLane>
int Encode(const FixedArgs& args, cudaStream_t stream) {
  BeginKernel<<<BlocksForWarps(args.tensor.samples / kWarp + 1), kThreads, 0, stream>>>(args);
  if (const int error = Launched(); error != 0) return error;
  MaximumKernel<kPerLane><<<BlocksForWarps(args.tiles), kThreads, 0, stream>>>(args);
  if (const int error = Launched(); error != 0) return error;
  EncodeKernel<kPerLane><<<BlocksForWarps(args.tiles), kThreads, 0, stream>>>(args);
  return Launched();
}

template <int kPerLane>
int Decode(const FixedArgs& args, cudaStream_t stream) {
  DecodeKernel<kPerLane><<<BlocksForWarps(args.tiles), kThreads, 0, stream>>>(args);
  return Launched();
}

}  // namespace

int EncodeFixed(int device, const FixedArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (args->tile == 32) return Encode<1>(*args, handle);
  return args->tile == 64 ? Encode<2>(*args, handle) : Encode<4>(*args, handle);
}

int DecodeFixed(int device, const FixedArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (args->tile == 32) return Decode<1>(*args, handle);
  return args->tile == 64 ? Decode<2>(*args, handle) : Decode<4>(*args, handle);
}

}  // namespace longhaul::codec::cuda
