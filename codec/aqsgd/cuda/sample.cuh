// Shared by the encoder and the decoder of aqsgd: access to the numbers that kernels keep for each
// sample, and to tiles. Four lanes share a tile of 64 elements, and each lane has 16 consecutive
// elements. The symbols are those of aqsgd/format.h. A half is an fp16 number.
#pragma once

#include "codec/aqsgd/arithmetic.h"
#include "codec/cuda/module/device_tile.cuh"

namespace longhaul::codec::cuda {

using aqsgd::Kind;

inline constexpr int kAqsgdLanes = aqsgd::kTile / kPerLane;
// The kind of a sample in an invalid blob: the sample decodes to NaN.
inline constexpr uint32_t kNoKind = 0;

// Pointers to the arrays of the scratch memory, and access to the caller's entries and records.
// `args` must outlive this object.
struct AqsgdSamples {
  __device__ explicit AqsgdSamples(const AqsgdArgs& args) : args_(args) {
    const AqsgdScratch scratch(args.tensor.samples, args.tensor.channels);
    unsigned char* const at = args.scratch_dev;
    nonfinite = reinterpret_cast<unsigned long long*>(at + scratch.nonfinite);
    largest = reinterpret_cast<uint32_t*>(at + scratch.largest);
    largest_difference = reinterpret_cast<uint32_t*>(at + scratch.largest_difference);
    maxima = reinterpret_cast<uint32_t*>(at + scratch.maxima);
    bodies = reinterpret_cast<uint64_t*>(at + scratch.bodies);
    kinds = reinterpret_cast<uint32_t*>(at + scratch.kinds);
    exponents = reinterpret_cast<int32_t*>(at + scratch.exponents);
    scales = reinterpret_cast<float*>(at + scratch.scales);
    reciprocals = reinterpret_cast<float*>(at + scratch.reciprocals);
  }

  // Returns whether the tensor's samples have ids.
  __device__ bool Remembers() const { return args_.entries_dev != nullptr; }
  __device__ aqsgd::Entry EntryOf(uint32_t sample) const {
    return Remembers() ? args_.entries_dev[sample] : aqsgd::Entry{};
  }
  __device__ unsigned char* RecordOf(uint32_t sample) const {
    return args_.records_dev + sample * args_.record_bytes;
  }
  // Returns c of the sample's record, which must exist.
  __device__ int RecordExponent(uint32_t sample) const {
    return *reinterpret_cast<const int16_t*>(RecordOf(sample));
  }
  // Returns the elements of the sample's record.
  __device__ uint16_t* ElementsOf(uint32_t sample) const {
    return reinterpret_cast<uint16_t*>(RecordOf(sample) + aqsgd::kRecordHeaderBytes);
  }
  __device__ unsigned char* Payload() const { return args_.blob_dev + kHeaderBytes; }

  // As in AqsgdScratch (kernels.h): one number for each sample. `maxima` has one number for each
  // channel of each sample.
  unsigned long long* nonfinite;
  uint32_t *largest, *largest_difference, *maxima;
  uint64_t* bodies;  // offset of the sample's body in the payload
  uint32_t* kinds;
  int32_t* exponents;
  // One number for each channel, and zeros up to the end of the last tile.
  float *scales, *reciprocals;

 private:
  const AqsgdArgs& args_;
};

// Returns the offset in the payload of a sample's body. `before`: number of differences among the
// earlier samples. `differences`: number of differences in the tensor. For `sample` equal to the
// number of samples, returns the size of the payload.
__device__ inline uint64_t BodyBegin(const AqsgdArgs& args, uint32_t sample, uint32_t before,
                                     uint32_t differences) {
  return args.variable + (differences > 0 ? args.scales_bytes : 0) +
         before * args.difference_bytes + (sample - before) * args.whole_bytes;
}

// Calls function(sample, is it a difference, differences before it) once for each sample, each call
// on one thread of the block. is_difference(sample) returns whether a sample is a difference. All
// threads of the block must call ForSamplesInOrder.
template <class IsDifference, class Function>
__device__ void ForSamplesInOrder(uint32_t samples, IsDifference&& is_difference,
                                  Function&& function) {
  __shared__ uint32_t of_warps[kThreads / kWarp];
  uint32_t before_all = 0;
  for (uint64_t first = 0; first < samples; first += kThreads) {
    const uint64_t sample = first + threadIdx.x;
    const bool difference = sample < samples && is_difference(static_cast<uint32_t>(sample));
    const uint32_t votes = __ballot_sync(kAllLanes, difference);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = __popc(votes);
    __syncthreads();
    uint32_t before = before_all + __popc(votes & ((1u << threadIdx.x % kWarp) - 1));
    for (uint32_t warp = 0; warp < kThreads / kWarp; ++warp) {
      if (warp < threadIdx.x / kWarp) before += of_warps[warp];
      before_all += of_warps[warp];
    }
    if (sample < samples) function(static_cast<uint32_t>(sample), difference, before);
    __syncthreads();
  }
}

// A tile's place in the tensor and in its sample.
struct AqsgdTile {
  uint32_t sample;
  TilePlace place;          // in the tensor
  uint64_t in_sample;       // index of the tile's first element in the sample
  uint64_t tile_of_sample;  // number of the tile in the sample
  uint32_t tile_of_token;   // number of the tile in the token
  bool last;                // the last tile of the sample
};
// `index`: number of the tile in the tensor.
__device__ inline AqsgdTile TileOf(const AqsgdArgs& args, uint32_t index) {
  AqsgdTile tile;
  const uint32_t token = index / args.tiles_per_token;
  tile.sample = token / args.tokens;
  tile.tile_of_token = index - token * args.tiles_per_token.value;
  const uint32_t of_sample = token - tile.sample * args.tokens.value;
  tile.place = Place(args.tensor, token, tile.tile_of_token, aqsgd::kTile);
  tile.in_sample = uint64_t{of_sample} * args.tensor.channels + tile.tile_of_token * aqsgd::kTile;
  tile.tile_of_sample = uint64_t{of_sample} * args.tiles_per_token.value + tile.tile_of_token;
  tile.last =
      of_sample + 1 == args.tokens.value && tile.tile_of_token + 1 == args.tiles_per_token.value;
  return tile;
}

__device__ inline uint64_t SampleElements(const AqsgdArgs& args) {
  return uint64_t{args.tensor.tokens} * args.tensor.channels;
}

// Loads halves[first], ..., halves[first + 15]; those from `count` on become 0. `halves`: a tile's
// elements. StoreHalves is the inverse, and does not store from `count` on.
__device__ inline void LoadHalves(const uint16_t* halves, uint32_t first, uint32_t count,
                                  uint16_t (&out)[kPerLane]) {
  if (first + kPerLane <= count && reinterpret_cast<uintptr_t>(halves) % 16 == 0) {
    const auto* const from = reinterpret_cast<const uint4*>(halves + first);
    const uint4 low = from[0];
    const uint4 high = from[1];
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      out[k] = static_cast<uint16_t>(words[k / 2] >> k % 2 * 16);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) out[k] = first + k < count ? halves[first + k] : 0;
}

// Loads 16 numbers. `from` must be aligned to 16 bytes.
__device__ inline void LoadFloats(const float* from, float (&out)[kPerLane]) {
#pragma unroll
  for (int k = 0; k < kPerLane; k += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + k);
    out[k] = four.x;
    out[k + 1] = four.y;
    out[k + 2] = four.z;
    out[k + 3] = four.w;
  }
}

__device__ inline void StoreHalves(const uint16_t (&values)[kPerLane], uint32_t first,
                                   uint32_t count, uint16_t* halves) {
  if (first + kPerLane <= count && reinterpret_cast<uintptr_t>(halves) % 16 == 0) {
    uint32_t words[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) words[k] = values[2 * k] | uint32_t{values[2 * k + 1]} << 16;
    auto* const to = reinterpret_cast<uint4*>(halves + first);
    to[0] = make_uint4(words[0], words[1], words[2], words[3]);
    to[1] = make_uint4(words[4], words[5], words[6], words[7]);
    return;
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    if (first + k < count) halves[first + k] = values[k];
  }
}

// Writes the first 16 bytes of a record, with the exponent c, and the padding at the end.
__device__ inline void FinishRecord(const AqsgdArgs& args, int exponent, unsigned char* record) {
  auto* const words = reinterpret_cast<uint32_t*>(record);
  words[0] = static_cast<uint16_t>(exponent);
  words[1] = words[2] = words[3] = 0;
  for (uint64_t k = 2 * SampleElements(args); k < args.whole_bytes; ++k) {
    record[aqsgd::kRecordHeaderBytes + k] = 0;
  }
}

// Returns m' = fp16(m + change), clamped to +-65504, with the same operations as on the CPU.
__device__ inline uint16_t UpdatedHalf(uint16_t message, float change) {
  const float value = FromHalf(message) + change;
  return ToHalf(fminf(fmaxf(value, -65504.0f), 65504.0f));
}

}  // namespace longhaul::codec::cuda
