// Kernels of tah, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct TahArgs {
  TensorArgs tensor;
  HeaderArgs header;          // encode
  uint32_t tile, stochastic;  // Params::tile; 1: stochastic rounding, 0: to nearest
  uint32_t noise[4];          // RoundingNoise::block()
  float tau;
  int32_t top_exponent;  // tah::TopExponent
  // The next four lines are from tah::Layout.
  Divisor token_allocs, alloc_tiles;
  uint32_t token_tiles, pivot_bits;
  uint64_t tiles, allocs, fours, pivot_bytes, precision_bytes;
  uint64_t scales, zeros, pivots, precision, codes, fourth_bits, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: TahScratch, aligned to 64 bytes
  // decode: or-ed with kFaultContents if a sample's exponent is out of range or its precision bits
  // are invalid
  uint32_t* fault_dev;
};

// Number of allocation tiles in a group, the unit of work of a thread block.
inline constexpr uint32_t kTahGroup = 256;
// Number of tiles in a run: one for each lane of a warp.
inline constexpr uint32_t kTahRun = 32;
// Number of bins of a histogram of entropies.
inline constexpr uint32_t kTahBins = 4096;

// Byte offsets of arrays in the encoder's scratch memory. The encoder first zeroes the bytes before
// `zeroed`. If all allocation tiles get the same number of bits, the encoder zeroes only the bytes
// before `histograms`. The steps of the encoder are in select.cuh and encode_whole.cuh.
struct TahScratch {
  constexpr TahScratch(uint64_t samples, uint64_t allocs)
      : done(8),
        maxima((done + 12 * samples + 127) / 128 * 128),
        candidate_counts(maxima + MaximaBytes(samples)),
        group_counts(candidate_counts + 4 * samples),
        histograms((group_counts + 4 * samples * Groups(allocs) + 15) / 16 * 16),
        zeroed(histograms + samples * kTahBins * 4),
        thresholds((zeroed + 7) / 8 * 8),
        bins(thresholds + 8 * samples),
        guesses((bins + 8 * samples + 15) / 16 * 16),
        candidates(guesses + 16 * samples),
        guessed(candidates + 8 * samples * allocs),
        fourths(guessed + 8 * samples * Runs(allocs)),
        entropies(fourths + 8 * samples * allocs),
        end(entropies + 4 * samples * allocs) {}
  static constexpr uint64_t Groups(uint64_t allocs) { return (allocs + kTahGroup - 1) / kTahGroup; }
  static constexpr uint64_t Runs(uint64_t allocs) { return (allocs + kTahRun - 1) / kTahRun; }
  // The first 8 bytes count the work items that thread blocks have taken.
  uint64_t done;  // three uint32 for each sample: work items done, by phase
  // Bits of the largest finite magnitude of each sample, spread over MaximaBytes. The encoder for
  // any shape and dtype uses only one uint32 for each sample.
  uint64_t maxima;
  uint64_t candidate_counts;  // uint32 for each sample: number of its candidates
  // uint32 for each group: first the number of allocation tiles with 4 bits in this group. A later
  // kernel replaces this number by the sum over all earlier groups of the sample.
  uint64_t group_counts;
  uint64_t histograms;  // kTahBins uint32 for each sample: number of allocation tiles by entropy
  uint64_t zeroed;
  uint64_t thresholds;  // uint64 for each sample: allocation tiles up to this sort key get 4 bits
  uint64_t bins;        // ThresholdBin (select.cuh) for each sample
  uint64_t guesses;     // TahGuess (encode_whole.cuh) for each sample
  // uint64, room for all allocation tiles: sort keys of the candidates, the allocation tiles whose
  // entropies lie in bins near the threshold
  uint64_t candidates;
  uint64_t guessed;    // GuessedRun (encode_whole.cuh) for each run
  uint64_t fourths;    // uint64 for each allocation tile: plane 3, if 4 bits were guessed
  uint64_t entropies;  // float for each allocation tile
  uint64_t end;
};
inline uint64_t TahScratchBytes(uint32_t samples, uint64_t allocs) {
  return (TahScratch(samples, allocs).end + 63) / 64 * 64;
}

struct TahKernels {
  static constexpr const char* kName = "tah";
  int (*encode)(int device, const TahArgs* args, void* stream);
  int (*decode)(int device, const TahArgs* args, void* stream);
};
extern const TahKernels kTahKernels;  // defined in the module only

}  // namespace longhaul::codec::cuda
