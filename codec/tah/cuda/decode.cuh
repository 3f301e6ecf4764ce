// The base class of tah's decoders. Terms and sections are those of tah/format.h.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/tah/cuda/kernels.h"
#include "codec/tah/cuda/select.cuh"
#include "codec/tah/cuda/tile.cuh"

namespace longhaul::codec::cuda {

// A thread block decodes consecutive groups of kTahGroup allocation tiles, so that it must count
// earlier precision bits only before its first group of a sample.
template <int kTile>
class TahDecoder {
 protected:
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kWordsOfGroup = kTahGroup / 32;  // words of a group's precision bits
  static constexpr uint32_t kNoSlot = 0xffffffff;            // slot of allocation tiles with 3 bits

  __device__ explicit TahDecoder(const TahArgs& args)
      : args_(args), payload_(args.blob_dev + kHeaderBytes) {}

  // Calls function(sample, first, end) for each sample of which this block decodes groups, the
  // groups [first, end). Sets fours_before_, exponent_ and possible_ before each call. All threads
  // of the block must call it.
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

  // Decodes a lane's elements of a tile to `values`, without the factor 2^-c. `there`: false for
  // lanes without a tile. `slot`: number of the allocation tile among those of the sample with 4
  // bits, or kNoSlot. `tile`: number of the tile in its allocation tile. *finite: false if the tile
  // must become NaN. All lanes of the warp must call it.
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
  uint32_t fours_before_ = 0;  // allocation tiles of the sample with 4 bits before the first group
  int exponent_ = 0;           // c of the sample
  bool possible_ = true;       // c and the precision bits of the sample are valid

 private:
  // Counts the sample's precision bits, before the group and in all. Sets the fault if c or the
  // precision bits are invalid.
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

// Queues the decoder for tensors with HasWholeTiles whose tiles are allocation tiles
// (decode_whole.cu). Returns a code of the CUDA runtime, 0 for success.
int DecodeWholeTiles(const TahArgs& args, cudaStream_t stream);

}  // namespace longhaul::codec::cuda
