#include "codec/cuda/module/sample_pipeline.cuh"
#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/fixed/cuda/fixed.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kItemTiles = 256;

template <int kTile>
class Encoder {
 public:
  static constexpr int kPhases = 2;

  __device__ Encoder(const FixedArgs& args, uint32_t lag)
      : args_(args),
        lag_(lag),
        payload_(args.blob_dev + kHeaderBytes),
        maxima_(reinterpret_cast<uint32_t*>(args.scratch_dev +
                                            FixedScratch(args.tensor.samples, 0).maxima)),
        vectorised_(Vectorised(args.tensor)) {}

  __device__ uint32_t Lag(int phase) const { return phase * lag_; }
  __device__ uint32_t Items(int /*phase*/) const {
    return static_cast<uint32_t>((SampleTiles(args_) + kItemTiles - 1) / kItemTiles);
  }
  __device__ void Run(int phase, uint32_t sample, uint32_t item) {
    phase == 0 ? FindMaximum(sample, item) : EncodeTiles(sample, item);
  }
  __device__ void Finish(int /*phase*/, uint32_t /*sample*/) {}

 private:
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kTogether = kThreads / kLanes;

  // Calls function(whether it is there, tile of the tensor, its place) for the tiles of an item,
  // with whole warps; the place of what lies behind the last one has no elements.
  template <class Function>
  __device__ void ForTiles(uint32_t sample, uint32_t item, Function&& function) {
    const uint64_t sample_tiles = SampleTiles(args_);
    const uint64_t first = uint64_t{item} * kItemTiles;
    for (uint32_t k = threadIdx.x / kLanes; k < kItemTiles; k += kTogether) {
      const bool there = first + k < sample_tiles;
      const auto tile = static_cast<uint32_t>(sample * sample_tiles + first + k);
      const uint32_t token = tile / args_.tiles_per_token;
      const uint32_t of_token = tile - token * args_.tiles_per_token.value;
      function(there, tile, there ? Place(args_.tensor, token, of_token, kTile) : TilePlace{0, 0});
    }
  }

  __device__ void FindMaximum(uint32_t sample, uint32_t item) {
    const uint32_t lane = threadIdx.x % kLanes;
    uint32_t largest = 0;
    ForTiles(sample, item, [&](bool /*there*/, uint32_t /*tile*/, const TilePlace& place) {
      Lane mine;
      LoadLane(args_.tensor, vectorised_, place, InARow(lane), &mine);
      const uint32_t of_tile = TileMax<kLanes>(mine.magnitude);
      if (of_tile < kF32Infinity) largest = max(largest, of_tile);
    });
    largest = __reduce_max_sync(kAllLanes, largest);
    // Most are below what was seen already: reading first spares their atomics.
    if (threadIdx.x % kWarp == 0 && largest > __ldcg(maxima_ + sample)) {
      atomicMax(maxima_ + sample, largest);
    }
  }

  __device__ void EncodeTiles(uint32_t sample, uint32_t item) {
    const int exponent = SampleExponent(__ldcg(maxima_ + sample), kFixedTopExponent);
    if (item == 0 && threadIdx.x == 0) {
      reinterpret_cast<int16_t*>(payload_)[sample] = static_cast<int16_t>(exponent);
    }
    const ScaleUp scale_up(exponent);
    unsigned nonfinite = 0;
    ForTiles(sample, item, [&](bool there, uint32_t tile, const TilePlace& place) {
      if (!EncodeTile(there, tile, place, scale_up)) ++nonfinite;
    });
    if (nonfinite != 0 && threadIdx.x % kLanes == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(args_.blob_dev + kNonfiniteOffset),
                static_cast<unsigned long long>(nonfinite));
    }
  }

  // False for a tile that is not finite.
  __device__ bool EncodeTile(bool there, uint32_t tile, const TilePlace& place,
                             const ScaleUp& scale_up) {
    const uint32_t lane = threadIdx.x % kLanes;
    Lane mine;
    LoadLane(args_.tensor, vectorised_, place, InARow(lane), &mine);
    const uint32_t largest = TileMax<kLanes>(mine.magnitude);
    if (!there) return true;
    const int top = (1 << (args_.bits - 1)) - 1;
    const bool stochastic = args_.stochastic != 0;
    uint16_t stored = kF16Nan;
    float scale = 0;
    if (largest < kF32Infinity) {
      const float exact = scale_up(__uint_as_float(largest)) / static_cast<float>(top);
      stored = stochastic ? ToHalfUp(exact) : ToHalf(exact);
      scale = FromHalf(stored);
    }
    if (lane == 0) reinterpret_cast<uint16_t*>(payload_ + args_.scales)[tile] = stored;
    int32_t codes[kPerLane] = {};
    if (scale > 0)
      Quantize(uint64_t{tile} * kTile + lane * kPerLane, scale_up, scale, top, mine.values, codes);
    unsigned char* const planes =
        payload_ + args_.codes + uint64_t{tile} * args_.bits * (kTile / 8) + 2 * lane;
    Pack(codes, top + 1, planes);
    return largest < kF32Infinity;
  }

  __device__ void Quantize(uint64_t element, const ScaleUp& scale_up, float scale, int top,
                           float (&values)[kPerLane], int32_t (&codes)[kPerLane]) {
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * scale_up.first;
    if (scale_up.second != 1.0f) {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) values[k] = values[k] * scale_up.second;
    }
    if (args_.stochastic == 0) {
      const auto limit = static_cast<float>(top);
      const float reciprocal = __frcp_rn(scale);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const float u = fminf(fmaxf(Divide(values[k], scale, reciprocal), -limit), limit);
        codes[k] = static_cast<int32_t>(__float_as_uint(u + kRoundMagic) - kRoundMagicBits);
      }
      return;
    }
    const AtRandom at_random(args_.bits);
    const float factor = at_random.Factor(scale);
#pragma unroll
    for (int eight = 0; eight < kPerLane; eight += 8) {
      const Philox::Counter noises = EightNoises(args_.noise, (element + eight) / 8);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t code =
            at_random.Code(__fmul_rn(values[eight + k], factor), NoiseOf(noises, k));
        codes[eight + k] = static_cast<int32_t>(code) - (top + 1);
      }
    }
  }

  // To two bytes of every plane.
  __device__ void Pack(const int32_t (&codes)[kPerLane], int32_t offset, unsigned char* planes) {
    for (uint32_t bit = 0; bit < args_.bits; bit += 4) {
      uint32_t words[2] = {0, 0};
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const auto code = static_cast<uint32_t>(codes[k] + offset);
        words[k / 8] |= (code >> bit & 15) << NibbleShift(k % 8);
      }
      const uint32_t low = TransposeNibbles(words[0]);
      const uint32_t high = TransposeNibbles(words[1]);
      const uint32_t left = min(args_.bits - bit, 4u);
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        if (k < left) {
          *reinterpret_cast<uint16_t*>(planes + (bit + k) * (kTile / 8)) =
              static_cast<uint16_t>((low >> 8 * k & 0xff) | (high >> 8 * k & 0xff) << 8);
        }
      }
    }
  }

  const FixedArgs& args_;
  const uint32_t lag_;
  unsigned char* const payload_;
  uint32_t* const maxima_;
  const bool vectorised_;
};

template <int kTile>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(const __grid_constant__ FixedArgs args, uint32_t lag) {
  Encoder<kTile> encoder(args, lag);
  const FixedScratch scratch(args.tensor.samples, 0);
  RunPipeline(encoder, args.tensor.samples,
              {reinterpret_cast<unsigned long long*>(args.scratch_dev),
               reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.done)});
}

template <int kTile>
__global__ void __launch_bounds__(kThreads) DecodeKernel(const __grid_constant__ FixedArgs args) {
  constexpr int kLanes = kTileLanes<kTile>;
  const uint32_t lane = threadIdx.x % kLanes;
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  const bool vectorised = Vectorised(args.tensor);
  const uint64_t tiles = args.tensor.samples * SampleTiles(args);
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * (kThreads / kLanes);
  for (uint64_t index = blockIdx.x * uint64_t{kThreads / kLanes} + threadIdx.x / kLanes;
       index < tiles; index += stride) {
    const auto tile = static_cast<uint32_t>(index);
    const uint32_t token = tile / args.tiles_per_token;
    const uint32_t sample = token / args.tokens;
    const TilePlace place =
        Place(args.tensor, token, tile - token * args.tiles_per_token.value, kTile);
    const int exponent = reinterpret_cast<const int16_t*>(payload)[sample];
    const uint16_t stored = reinterpret_cast<const uint16_t*>(payload + args.scales)[tile];
    const unsigned char* const planes =
        payload + args.codes + index * args.bits * (kTile / 8) + 2 * lane;
    uint32_t codes[kPerLane] = {};
    for (uint32_t bit = 0; bit < args.bits; bit += 4) {
      uint32_t low = 0;
      uint32_t high = 0;
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        if (bit + k < args.bits) {
          const uint32_t two = *reinterpret_cast<const uint16_t*>(planes + (bit + k) * (kTile / 8));
          low |= (two & 0xff) << 8 * k;
          high |= (two >> 8) << 8 * k;
        }
      }
      low = TransposeNibbles(low);
      high = TransposeNibbles(high);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        codes[k] |= ((k < 8 ? low : high) >> NibbleShift(k % 8) & 15) << bit;
      }
    }
    const bool possible = exponent >= kMinExponent && exponent <= kMaxExponent;
    if (!possible) atomicOr(args.fault_dev, 1u);
    const float scale = FromHalf(stored);
    const auto offset = static_cast<float>(1 << (args.bits - 1));
    float values[kPerLane];
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      // Exact: the code as a float.
      const float code = __uint_as_float(0x4b000000 | codes[k]) - (8388608.0f + offset);
      values[k] = code * scale;
    }
    StoreLane(args.tensor, vectorised, place, lane, possible && (stored & 0x7c00) != 0x7c00,
              possible ? exponent : 0, values);
  }
}

template <int kTile>
int Encode(const FixedArgs& args, cudaStream_t stream) {
  const FixedScratch scratch(args.tensor.samples, 0);
  if (const int error = BeginFixedEncoder(args, scratch, stream); error != 0) return error;
  const uint64_t items =
      (uint64_t{args.tensor.tokens} * args.tiles_per_token.value + kItemTiles - 1) / kItemTiles;
  unsigned blocks = 1;
  if (const int error = ResidentBlocks(reinterpret_cast<const void*>(EncodeKernel<kTile>),
                                       items * args.tensor.samples, &blocks);
      error != 0) {
    return error;
  }
  EncodeKernel<kTile><<<blocks, kThreads, 0, stream>>>(
      args, PipelineLag(2 * items, blocks, SampleBytes(args.tensor)));
  return Launched();
}

template <int kTile>
int Decode(const FixedArgs& args, cudaStream_t stream) {
  const uint64_t tiles =
      uint64_t{args.tensor.samples} * args.tensor.tokens * args.tiles_per_token.value;
  const uint64_t threads = tiles * kTileLanes<kTile>;
  constexpr uint64_t kMostBlocks = 1u << 30;
  const uint64_t blocks = (threads + kThreads - 1) / kThreads;
  DecodeKernel<kTile>
      <<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(
          args);
  return Launched();
}

}  // namespace

int EncodeFixed(int device, const FixedArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (HasWholeTiles(args->tensor, args->tile) ||
      (args->stochastic != 0 && HasWholeTiles(args->tensor, args->tile, kF32))) {
    return EncodeFixedWholeTiles(*args, handle);
  }
  if (args->tile == 32) return Encode<32>(*args, handle);
  return args->tile == 64 ? Encode<64>(*args, handle) : Encode<128>(*args, handle);
}

int DecodeFixed(int device, const FixedArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (HasWholeTiles(args->tensor, args->tile)) return DecodeFixedWholeTiles(*args, handle);
  if (args->tile == 32) return Decode<32>(*args, handle);
  return args->tile == 64 ? Decode<64>(*args, handle) : Decode<128>(*args, handle);
}

const FixedKernels kFixedKernels = {EncodeFixed, DecodeFixed};

}  // namespace longhaul::codec::cuda
