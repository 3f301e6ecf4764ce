// What kernels of predict share: which rows predict a token, and its value from them.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/predict/arithmetic.h"

namespace longhaul::codec::cuda {

inline constexpr uint64_t kPredictIds = kHeaderBytes + predict::kFrontBytes;

class PredictRows {
 public:
  __device__ explicit PredictRows(const PredictArgs& args) : args_(args) {}

  __device__ uint32_t Tokens() const { return args_.tensor.samples * args_.tensor.tokens; }
  __device__ bool HasPairs() const { return args_.log2_pairs > 0; }
  // A decoder takes the blob's.
  __device__ uint32_t IdOf(uint32_t token) const {
    if (args_.decodes == 0) return args_.ids_dev[token];
    const unsigned char* const section = args_.blob_dev + kPredictIds;
    return args_.id_bytes == 2 ? reinterpret_cast<const uint16_t*>(section)[token]
                               : reinterpret_cast<const uint32_t*>(section)[token];
  }
  __device__ uint32_t PairOf(uint32_t token) const {
    const bool first = token == token / args_.tokens * args_.tokens.value;
    return predict::PairRow(first ? 0 : IdOf(token - 1), IdOf(token), args_.log2_pairs);
  }
  __device__ uint32_t RowOf(uint32_t token, bool of_pairs) const {
    return of_pairs ? PairOf(token) : IdOf(token);
  }
  // The row's place among all rows. `row` is one of pairs, or an id below the vocabulary.
  __device__ uint64_t Place(uint32_t row, bool of_pairs) const {
    return row + (of_pairs ? uint64_t{args_.vocabulary} : 0);
  }
  // The place of the mean over all tokens.
  __device__ uint64_t PlaceOfMean() const {
    return uint64_t{args_.vocabulary} + (HasPairs() ? 1u << args_.log2_pairs : 0);
  }
  __device__ uint16_t* RowAt(uint64_t place) const {
    return args_.rows_dev + place * args_.tensor.channels;
  }

 private:
  const PredictArgs& args_;
};

// So many channels in a row: one, or four where all that kernels touch lies at multiples of four.
template <int kWidth>
using Channels = float[kWidth];
inline bool InFours(const TensorArgs& tensor) {
  const uint32_t bytes = tensor.dtype == kF32 ? 4 : 2;
  return tensor.channels % 4 == 0 &&
         reinterpret_cast<uintptr_t>(tensor.data_dev) % (4 * bytes) == 0;
}

template <int kWidth>
__device__ inline void LoadChannels(const float* from, Channels<kWidth>& to) {
  if constexpr (kWidth == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  } else {
    to[0] = *from;
  }
}
template <int kWidth>
__device__ inline void StoreChannels(const Channels<kWidth>& from, float* to) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    *to = from[0];
  }
}

// The same for a row of bf16.
template <int kWidth>
__device__ inline void LoadRow(const uint16_t* from, Channels<kWidth>& to) {
  if constexpr (kWidth == 4) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    to[0] = __uint_as_float(words.x << 16);
    to[1] = __uint_as_float(words.x & 0xffff0000);
    to[2] = __uint_as_float(words.y << 16);
    to[3] = __uint_as_float(words.y & 0xffff0000);
  } else {
    to[0] = Bf16ToF32(*from);
  }
}
template <int kWidth>
__device__ inline void StoreRow(const uint32_t (&bits)[kWidth], uint16_t* to) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
  } else {
    *to = static_cast<uint16_t>(bits[0]);
  }
}

// Elements of the tensor.
template <int kWidth>
__device__ inline void LoadElements(const TensorArgs& tensor, uint64_t first,
                                    Channels<kWidth>& to) {
  if (tensor.dtype == kF32) {
    LoadChannels<kWidth>(static_cast<const float*>(tensor.data_dev) + first, to);
    return;
  }
  const auto* const from = static_cast<const uint16_t*>(tensor.data_dev) + first;
  uint16_t raw[kWidth];
  if constexpr (kWidth == 4) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    raw[0] = static_cast<uint16_t>(words.x);
    raw[1] = static_cast<uint16_t>(words.x >> 16);
    raw[2] = static_cast<uint16_t>(words.y);
    raw[3] = static_cast<uint16_t>(words.y >> 16);
  } else {
    raw[0] = *from;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    to[k] = tensor.dtype == kBf16 ? Bf16ToF32(raw[k]) : F16ToF32(raw[k]);
  }
}
// What lies outside of the dtype's range becomes its largest number.
template <int kWidth>
__device__ inline void StoreElements(const Channels<kWidth>& from, const TensorArgs& tensor,
                                     uint64_t first) {
  if (tensor.dtype == kF32) {
    StoreChannels<kWidth>(from, static_cast<float*>(tensor.data_dev) + first);
    return;
  }
  const float limit = LargestFinite(tensor.dtype);
  uint32_t raw[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float most = from[k] > limit ? limit : from[k];
    const float value = most < -limit ? -limit : most;
    raw[k] = tensor.dtype == kBf16 ? F32ToBf16(value) : F32ToF16(value);
  }
  auto* const to = static_cast<uint16_t*>(tensor.data_dev) + first;
  if constexpr (kWidth == 4) {
    *reinterpret_cast<uint2*>(to) = make_uint2(raw[0] | raw[1] << 16, raw[2] | raw[3] << 16);
  } else {
    *to = static_cast<uint16_t>(raw[0]);
  }
}

// What predicts a token, whose id is below the vocabulary.
struct Predictor {
  __device__ Predictor(const PredictArgs& args, const PredictRows& rows, uint32_t token)
      : mean(args.mean_dev),
        of_token(rows.RowAt(rows.Place(rows.IdOf(token), false))),
        of_pair(rows.HasPairs() ? rows.RowAt(rows.Place(rows.PairOf(token), true)) : nullptr) {}
  template <int kWidth>
  __device__ void Predict(uint32_t channel, Channels<kWidth>& sum) const {
    LoadChannels<kWidth>(mean + channel, sum);
    Channels<kWidth> more;
    LoadRow<kWidth>(of_token + channel, more);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] = sum[k] + more[k];
    if (of_pair == nullptr) return;
    LoadRow<kWidth>(of_pair + channel, more);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] = sum[k] + more[k];
  }
  const float* mean;
  const uint16_t *of_token, *of_pair;
};

// An array of PredictScratch: of tokens, or of pairs behind them.
__device__ inline uint32_t* ScratchAt(const PredictArgs& args, uint64_t array) {
  return reinterpret_cast<uint32_t*>(args.scratch_dev + array);
}

// Adds a row's new numbers, of which every thread of a warp has a part, to what the tables' check
// will be of: a sum of integers, the same in whatever order. `place`: the row's.
__device__ inline void AddToCheck(const PredictArgs& args, uint32_t part, uint64_t place) {
  const uint32_t hash = __reduce_add_sync(kAllLanes, part);
  if (threadIdx.x % kWarp != 0) return;
  const uint32_t warp = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  atomicAdd(&args.state_dev->sums[warp % PredictState::kSums], hash * predict::RowWeight(place));
}

// As the CPU's: what is not finite becomes one NaN.
__device__ inline float FiniteOrNan(float value) {
  const bool finite = (__float_as_uint(value) & 0x7fffffff) < 0x7f800000;
  return finite ? value : __uint_as_float(0x7fc00000);
}

}  // namespace longhaul::codec::cuda
