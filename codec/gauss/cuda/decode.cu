#include "codec/cuda/module/kernels.cuh"
#include "codec/gauss/cuda/block.cuh"
#include "codec/gauss/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

// The levels by their index, which here is known only at run time.
template <int kBits>
struct LevelTable {
  template <int kJ = 0>
  constexpr void Fill() {
    value[kJ] = gauss::kLevel<kBits, kJ>;
    if constexpr (kJ + 1 < 1 << (kBits - 1)) Fill<kJ + 1>();
  }
  constexpr LevelTable() { Fill(); }
  float value[1 << (kBits - 1)] = {};
};
template <int kBits>
__device__ constexpr LevelTable<kBits> kLevels;

// Codes to levels. Lane i of the warp keeps the level of the codes that end in the bits of i.
template <int kBits>
class Dequantizer {
 public:
  __device__ Dequantizer() {
    constexpr uint32_t kCount = 1u << (kBits - 1);
    table_ = Signed(kLevels<kBits>.value[threadIdx.x & (kCount - 1)],
                    kBits < 6 && (threadIdx.x & kCount) != 0 ? 0x80000000 : 0);
  }

  // 16 elements from 16 bits of every plane.
  __device__ void Levels(const uint32_t (&planes)[kBits], float* values) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t low = Nibbles<0>(planes, half);
      const uint32_t high = kBits > 4 ? Nibbles<4>(planes, half) : 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        uint32_t code = low >> NibbleShift(k);  // and bits of others, which no lane looks at
        if constexpr (kBits > 4) code = (code & 15) | (high >> NibbleShift(k) & 3) << 4;
        float value = __shfl_sync(kAllLanes, table_, static_cast<int>(code));
        if constexpr (kBits == 6) value = Signed(value, code << 26 & 0x80000000);
        values[8 * half + k] = value;
      }
    }
  }

 private:
  // The codes' bits from kFirst on, four at most, of eight elements.
  template <int kFirst>
  static __device__ uint32_t Nibbles(const uint32_t (&planes)[kBits], int half) {
    uint32_t word = 0;
#pragma unroll
    for (int plane = kFirst; plane < kBits && plane < kFirst + 4; ++plane) {
      word |= (planes[plane] >> 8 * half & 0xff) << 8 * (plane - kFirst);
    }
    return TransposeNibbles(word);
  }

  float table_;
};

// How a lane's numbers become elements.
struct Ending {
  bool nan, zero;
};

// 16 elements in a row of the block, with their signs changed back; what lies outside of the
// dtype's range becomes its largest number.
__device__ inline void StoreRun(const TensorArgs& tensor, bool vectorised, const GaussPlace& place,
                                uint32_t first, const Ending& ending, float* values) {
  uint32_t signs[kRun / 2];
  LoadSigns(first, signs);
  if (ending.nan || ending.zero) {
#pragma unroll
    for (int k = 0; k < kRun; ++k) values[k] = ending.nan ? __uint_as_float(0x7fc00000) : 0.0f;
#pragma unroll
    for (uint32_t& sign : signs) sign = 0;
  }
  const bool whole = vectorised && first + kRun <= place.count;
  if (whole && tensor.dtype != kF32) {
    uint32_t words[kRun / 2];
#pragma unroll
    for (int k = 0; k < kRun / 2; ++k) {
      if (tensor.dtype == kBf16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(words[k])
            : "f"(values[2 * k + 1]), "f"(values[2 * k]));
      } else {
        const __half2 two = __floats2half2_rn(values[2 * k], values[2 * k + 1]);
        words[k] = *reinterpret_cast<const uint32_t*>(&two);
      }
      words[k] ^= signs[k];
    }
    if (ending.nan) {
#pragma unroll
      for (uint32_t& word : words) word = tensor.dtype == kBf16 ? 0x7fc07fc0 : 0x7e007e00;
    }
    auto* const to =
        reinterpret_cast<uint4*>(static_cast<uint16_t*>(tensor.data_dev) + place.offset + first);
    to[0] = make_uint4(words[0], words[1], words[2], words[3]);
    to[1] = make_uint4(words[4], words[5], words[6], words[7]);
    return;
  }
#pragma unroll
  for (int k = 0; k < kRun / 2; ++k) {
    values[2 * k] = Signed(values[2 * k], signs[k] << 16);
    values[2 * k + 1] = Signed(values[2 * k + 1], signs[k] & 0x80000000);
  }
  if (whole) {
    auto* const to =
        reinterpret_cast<float4*>(static_cast<float*>(tensor.data_dev) + place.offset + first);
#pragma unroll
    for (int k = 0; k < kRun / 4; ++k) {
      to[k] = make_float4(values[4 * k], values[4 * k + 1], values[4 * k + 2], values[4 * k + 3]);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kRun; ++k) {
    if (first + k < place.count) {
      StoreElement(values[k], tensor.data_dev, tensor.dtype, place.offset + first + k);
    }
  }
}

template <int kBits>
__global__ void __launch_bounds__(kGaussThreads)
    DecodeKernel(const __grid_constant__ GaussArgs args, uint32_t whole_grid) {
  const GaussPlace place = PlaceOfLane(args, whole_grid);
  const unsigned char* const payload = args.blob_dev + kHeaderBytes;
  int exponent = 0;
  int byte = gauss::kZeroBlock;
  uint32_t planes[kRuns][kBits] = {};
  if (place.there) {
    const uint32_t sample = place.token / args.tokens;
    exponent = reinterpret_cast<const int16_t*>(payload)[sample];
    byte = payload[args.scales + (place.token * args.blocks_of_token.value + place.block)];
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const unsigned char* const from = payload + place.planes + RunBegin(place, run) / 8;
#pragma unroll
      for (int plane = 0; plane < kBits; ++plane) {
        planes[run][plane] = *reinterpret_cast<const uint16_t*>(from + plane * (place.size / 8));
      }
    }
  }
  const Dequantizer<kBits> dequantizer;
  float values[kOfLane];
#pragma unroll
  for (int run = 0; run < kRuns; ++run) dequantizer.Levels(planes[run], values + run * kRun);
  TransformBlock(place.lanes, values);
  if (!place.there) return;
  const bool possible = exponent >= gauss::kMinExponent && exponent <= gauss::kMaxExponent;
  if (!possible) atomicOr(args.fault_dev, 1u);
  const gauss::BlockScale scale(byte, possible ? exponent : 0,
                                __ffs(static_cast<int>(place.size)) - 1);
  // Numbers of the transform are 0 or lie within 2^-40 and 2^11: one multiplication gives what two
  // do where the result is neither subnormal nor too large.
  const float factor = scale.first * scale.second;
  const bool once = factor >= 0x1p-80f && factor <= (args.tensor.dtype == kF16 ? 0x1p4f : 0x1p100f);
  if (once) {
#pragma unroll
    for (float& value : values) value = value * factor;
  } else {
    const float limit = LargestFinite(args.tensor.dtype);
#pragma unroll
    for (float& value : values) value = fminf(fmaxf(scale(value), -limit), limit);
  }
  const Ending ending{.nan = !possible || byte == gauss::kNonfiniteBlock,
                      .zero = byte == gauss::kZeroBlock};
  const bool vectorised = Vectorised(args.tensor);
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    StoreRun(args.tensor, vectorised, place, RunBegin(place, run), ending, values + run * kRun);
  }
}

template <int kBits>
int Decode(const GaussArgs& args, cudaStream_t stream) {
  const GaussGrid grid(args);
  DecodeKernel<kBits><<<grid.all, kGaussThreads, 0, stream>>>(args, grid.whole);
  return Launched();
}

}  // namespace

int DecodeGauss(int device, const GaussArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  switch (args->bits) {
    case 2:
      return Decode<2>(*args, handle);
    case 3:
      return Decode<3>(*args, handle);
    case 4:
      return Decode<4>(*args, handle);
    case 5:
      return Decode<5>(*args, handle);
    default:
      return Decode<6>(*args, handle);
  }
}

}  // namespace longhaul::codec::cuda
