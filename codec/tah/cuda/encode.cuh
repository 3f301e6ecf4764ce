// The base class of tah's encoders: finds their scratch memory, and writes parts of the payload.
// Terms and sections are those of tah/format.h.
#pragma once

#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/tah/cuda/kernels.h"
#include "codec/tah/cuda/select.cuh"
#include "codec/tah/cuda/tile.cuh"

namespace longhaul::codec::cuda {

template <int kTile>
class TahEncoder {
 protected:
  static constexpr uint32_t kNoSlot = 0xffffffff;  // slot of allocation tiles with 3 bits

  __device__ TahEncoder(const TahArgs& args, const TahScratch& scratch)
      : args_(args),
        scratch_(scratch),
        payload_(args.blob_dev + kHeaderBytes),
        choose_(args.fours > 0 && args.fours < args.allocs) {}

  template <class T>
  __device__ T* Scratch(uint64_t offset) const {
    return reinterpret_cast<T*>(args_.scratch_dev + offset);
  }
  // Returns the search for a sample, with margin 0. The caller must set group_size, and add the
  // sample's offset to group_counts_dev, which points to the counts of the whole tensor.
  __device__ SampleChoice ChoiceOf(uint32_t sample) const {
    return {.allocs = args_.allocs,
            .fours = args_.fours,
            .bins = MakeBins(args_.alloc_tiles.value * kTile),
            .margin = 0,
            .entropies_dev = Scratch<float>(scratch_.entropies) + sample * args_.allocs,
            .histogram_dev = Scratch<uint32_t>(scratch_.histograms) + uint64_t{sample} * kTahBins,
            .bin_dev = Scratch<ThresholdBin>(scratch_.bins) + sample,
            .candidates_dev = Scratch<uint64_t>(scratch_.candidates) + sample * args_.allocs,
            .candidate_count_dev = Scratch<uint32_t>(scratch_.candidate_counts) + sample,
            .group_size = 0,
            .group_counts_dev = Scratch<uint32_t>(scratch_.group_counts),
            .threshold_dev = Scratch<uint64_t>(scratch_.thresholds) + sample};
  }

  // Records the largest `magnitude` of the warp's lanes for the sample. All lanes must call it.
  __device__ void RecordLargest(uint32_t sample, uint32_t magnitude) const {
    const uint32_t largest = __reduce_max_sync(kAllLanes, magnitude);
    uint32_t* const maximum = Scratch<uint32_t>(scratch_.maxima) + sample;
    // Most magnitudes are below the maximum so far. Reading first avoids their atomics.
    if (threadIdx.x % kWarp == 0 && largest > __ldcg(maximum)) atomicMax(maximum, largest);
  }

  // Returns the exponent c of the sample, when all its magnitudes are recorded. The block with the
  // sample's group 0 also writes c to the payload.
  __device__ int TakeExponent(uint32_t sample, uint32_t group) const {
    const int exponent =
        SampleExponent(__ldcg(Scratch<uint32_t>(scratch_.maxima) + sample), args_.top_exponent);
    if (group == 0 && threadIdx.x == 0) {
      reinterpret_cast<int16_t*>(payload_)[sample] = static_cast<int16_t>(exponent);
    }
    return exponent;
  }

  // Returns the place of a fourth plane. `slot`: number of the allocation tile among the sample's
  // allocation tiles with 4 bits. `tile`: number of the tile in the allocation tile.
  __device__ unsigned char* FourthPlane(uint32_t sample, uint32_t slot, uint32_t tile) const {
    const uint64_t place = (sample * args_.fours + slot) * args_.alloc_tiles.value + tile;
    return payload_ + args_.fourth_bits + place * (kTile / 8);
  }

  // Writes a tile except its fourth plane. All lanes of the tile must call it. Returns false if the
  // tile has a NaN or an infinity.
  __device__ bool PutTile(uint32_t sample, uint64_t sample_tile, const CodedTile& coded) const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    const uint32_t lane = threadIdx.x % kLanes;
    const uint64_t tensor_tile = sample * args_.tiles + sample_tile;
    if (lane == 0) {
      reinterpret_cast<uint16_t*>(payload_ + args_.scales)[tensor_tile] = coded.scale;
      reinterpret_cast<uint16_t*>(payload_ + args_.zeros)[tensor_tile] = coded.zero;
      if (coded.pivot != 0) PutPivot(sample, sample_tile, coded.pivot);
    }
    auto* const planes =
        reinterpret_cast<uint16_t*>(payload_ + args_.codes + tensor_tile * (3 * kTile / 8));
    planes[lane] = static_cast<uint16_t>(coded.planes[0]);
    planes[lane + kLanes] = static_cast<uint16_t>(coded.planes[0] >> 16);
    planes[lane + 2 * kLanes] = static_cast<uint16_t>(coded.planes[1]);
    return (coded.scale & 0x7c00) != 0x7c00;
  }

  // Adds a number of tiles with a NaN or an infinity to the blob's header. All lanes of a tile pass
  // the same number, and only the first lane adds it.
  __device__ void CountNonfinite(unsigned tiles) const {
    if (tiles != 0 && threadIdx.x % kTileLanes<kTile> == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(args_.blob_dev + kNonfiniteOffset),
                static_cast<unsigned long long>(tiles));
    }
  }

  const TahArgs& args_;
  const TahScratch& scratch_;
  unsigned char* const payload_;
  const bool choose_;  // some allocation tiles get 3 bits and others 4, so entropies decide

 private:
  // Writes a pivot. The bits must be zero before. Atomic, because tiles share words.
  __device__ void PutPivot(uint32_t sample, uint64_t tile, uint32_t pivot) const {
    const uint64_t bit = tile * args_.pivot_bits;
    auto* const words =
        reinterpret_cast<uint32_t*>(payload_ + args_.pivots + sample * args_.pivot_bytes) +
        bit / 32;
    const uint64_t shifted = uint64_t{pivot} << bit % 32;
    atomicOr(words, static_cast<uint32_t>(shifted));
    if (shifted >> 32 != 0) atomicOr(words + 1, static_cast<uint32_t>(shifted >> 32));
  }
};

// Returns the header and the zeroed ranges with which all encoders begin.
inline Beginning TahBeginning(const TahArgs& args, const TahScratch& scratch) {
  Beginning beginning{};
  beginning.header = args.header;
  beginning.blob_dev = args.blob_dev;
  beginning.scratch_dev = args.scratch_dev;
  const bool choose = args.fours > 0 && args.fours < args.allocs;
  beginning.scratch_bytes = choose ? scratch.zeroed : scratch.histograms;
  beginning.ranges[0] = {0, args.scales};
  beginning.ranges[1] = {args.zeros - 16, args.zeros};
  beginning.ranges[2] = {args.pivots - 16, args.precision};
  beginning.ranges[3] = {args.codes - 16, args.codes};
  beginning.ranges[4] = {args.fourth_bits - 16, args.fourth_bits};
  if (args.end > args.fourth_bits) beginning.ranges[5] = {args.end - 16, args.end};
  return beginning;
}

// Queues the encoder for rounding to nearest, and for tensors with HasWholeTiles whose tiles are
// allocation tiles (encode_whole.cu). Returns a code of the CUDA runtime, 0 for success.
int EncodeWholeTiles(const TahArgs& args, cudaStream_t stream);

}  // namespace longhaul::codec::cuda
