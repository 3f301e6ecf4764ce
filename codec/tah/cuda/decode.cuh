// What the decoders of tah share.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/tah/cuda/kernels.h"
#include "codec/tah/cuda/select.cuh"
#include "codec/tah/cuda/tile.cuh"

namespace longhaul::codec::cuda {

// A block takes groups of allocation tiles that follow each other, so that it counts the precision
// bits before its first one alone.
template <int kTile>
class TahDecoder {
 protected:
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kWordsOfGroup = kTahGroup / 32;
  static constexpr uint32_t kNoSlot = 0xffffffff;

  __device__ explicit TahDecoder(const TahArgs& args)
      : args_(args), payload_(args.blob_dev + kHeaderBytes) {}

  // Calls function(sample, first group, end of the groups) for what is this block's of each sample.
  template <class Function>
  __device__ void ForSamples(Function&& function) {
    const uint64_t groups = TahScratch::Groups(args_.allocs);
    const uint64_t all = groups * args_.tensor.samples;
    const uint64_t share = (all + gridDim.x - 1) / gridDim.x;
    const uint64_t end = min(all, (blockIdx.x + 1) * share);
    for (uint64_t k = blockIdx.x * share; k < end;) {
      const auto sample = static_cast<uint32_t>(k / groups);
      const auto first = static_cast<uint32_t>(k - sample * groups);
      const auto last = static_cast<uint32_t>(min(groups, first + end - k));
      EnterSample(sample, first);
      function(sample, first, last);
      k += last - first;
    }
  }

  __device__ const uint32_t* Precision(uint32_t sample) const {
    return reinterpret_cast<const uint32_t*>(payload_ + args_.precision +
                                             sample * args_.precision_bytes);
  }

  __device__ void DecodeTile(uint32_t sample, bool there, uint64_t sample_tile, uint32_t slot,
                             uint32_t tile, bool* finite, float (&values)[kPerLane]) {
    const uint32_t lane = threadIdx.x % kLanes;
    uint16_t stored = 0;
    uint16_t stored_zero = 0;
    uint32_t pivot = 0;
    uint32_t words[2] = {0, 0};
    if (there) {
      const uint64_t tensor_tile = sample * args_.tiles + sample_tile;
      stored = reinterpret_cast<const uint16_t*>(payload_ + args_.scales)[tensor_tile];
      stored_zero = reinterpret_cast<const uint16_t*>(payload_ + args_.zeros)[tensor_tile];
      const auto* const planes =
          reinterpret_cast<const uint16_t*>(payload_ + args_.codes + tensor_tile * (3 * kTile / 8));
      const uint32_t low = planes[lane] | uint32_t{planes[lane + kLanes]} << 16;
      uint32_t high = planes[lane + 2 * kLanes];
      if (slot != kNoSlot) {
        const uint64_t place = (sample * args_.fours + slot) * args_.alloc_tiles.value + tile;
        high |= uint32_t{reinterpret_cast<const uint16_t*>(payload_ + args_.fourth_bits +
                                                           place * (kTile / 8))[lane]}
                << 16;
      }
      words[0] = TransposeNibbles(__byte_perm(low, high, 0x6420));
      words[1] = TransposeNibbles(__byte_perm(low, high, 0x7531));
      if ((stored & 0x8000) != 0) pivot = Pivot(sample, sample_tile);
    }
    *finite = possible_ && (stored & 0x7c00) != 0x7c00 && (stored_zero & 0x7c00) != 0x7c00;
    const float scale = FromHalf(stored & 0x7fff);
    const float zero = FromHalf(stored_zero);
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const uint32_t code = words[k / 8] >> NibbleShift(k % 8) & 15;
      const float number = __uint_as_float(0x4b000000 | code) - 8388608.0f;
      values[k] = number * scale + zero;
    }
    const bool transformed = *finite && (stored & 0x8000) != 0;
    if (__any_sync(kAllLanes, transformed)) {
      float changed[kPerLane];
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) changed[k] = values[k];
      Hadamard<kTile>(changed);
      SwapPivot<kTile>(pivot, changed);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) values[k] = transformed ? changed[k] : values[k];
    }
  }

  const TahArgs& args_;
  const unsigned char* const payload_;
  uint32_t fours_before_ = 0;  // the group
  int exponent_ = 0;           // of the sample
  bool possible_ = true;

 private:
  // Counts the sample's precision bits: those before the group, and all.
  __device__ void EnterSample(uint32_t sample, uint32_t group) {
    __shared__ uint32_t words[kThreads / kWarp];
    const uint32_t* const precision = Precision(sample);
    const uint64_t count = args_.precision_bytes / 4;
    uint32_t before = 0;
    uint32_t all = 0;
    bool beyond = false;
    for (uint64_t k = threadIdx.x; k < count; k += kThreads) {
      const uint32_t word = precision[k];
      if (k < uint64_t{group} * kWordsOfGroup) before += __popc(word);
      all += __popc(word);
      const uint64_t first = 32 * k;
      if (first + 32 > args_.allocs) {
        const uint64_t used = args_.allocs > first ? args_.allocs - first : 0;
        beyond = beyond || word >> used != 0;
      }
    }
    uint32_t total = 0;
    BlockScan(before, words, &total);
    fours_before_ = total;
    BlockScan(all, words, &total);
    exponent_ = reinterpret_cast<const int16_t*>(payload_)[sample];
    const bool fits = __syncthreads_or(beyond) == 0 && total == args_.fours;
    possible_ = fits && exponent_ >= kMinExponent && exponent_ <= kMaxExponent;
    if (!possible_) {
      if (threadIdx.x == 0) atomicOr(args_.fault_dev, 1u);
      exponent_ = 0;
    }
  }

  __device__ uint32_t Pivot(uint32_t sample, uint64_t tile) const {
    const uint64_t bit = tile * args_.pivot_bits;
    const unsigned char* const bits =
        payload_ + args_.pivots + sample * args_.pivot_bytes + bit / 8;
    uint32_t value = bits[0];
    if (bit % 8 + args_.pivot_bits > 8) value |= uint32_t{bits[1]} << 8;
    return value >> bit % 8 & ((1u << args_.pivot_bits) - 1);
  }
};

// The decoder for tensors that HasWholeTiles, where every tile is an allocation tile
// (decode_whole.cu).
int DecodeWholeTiles(const TahArgs& args, cudaStream_t stream);

}  // namespace longhaul::codec::cuda
