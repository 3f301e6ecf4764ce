// Kernels of tah, and their arguments (codec/cuda/kernel_table.h: the contract of all kernels).
#pragma once

#include <cstdint>

#include "codec/cuda/kernel_args.h"

namespace longhaul::codec::cuda {

struct TahArgs {
  TensorArgs tensor;
  HeaderArgs header;
  uint32_t tile, stochastic;
  uint32_t noise[4];
  float tau;
  int32_t top_exponent;
  // tah::Layout: of a token, of an allocation tile, of a sample.
  Divisor token_allocs, alloc_tiles;
  uint32_t token_tiles, pivot_bits;
  uint64_t tiles, allocs, fours, pivot_bytes, precision_bytes;
  uint64_t scales, zeros, pivots, precision, codes, fourth_bits, end;
  unsigned char* blob_dev;
  unsigned char* scratch_dev;  // encode: TahScratch, aligned to 64 bytes
  // decode: or-ed with 1 if an exponent or the number of precision bits is impossible
  uint32_t* fault_dev;
};

// Allocation tiles are handled in groups of this many.
inline constexpr uint32_t kTahGroup = 256;
// Tiles of a warp that has one tile for each lane.
inline constexpr uint32_t kTahRun = 32;
inline constexpr uint32_t kTahBins = 4096;

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
  // The first 8 bytes count the work items that blocks have taken.
  uint64_t done;              // uint32, three a sample
  uint64_t maxima;            // as above
  uint64_t candidate_counts;  // uint32, one a sample
  uint64_t group_counts;      // uint32, one a group: with 4 bits, then those of all groups before
  uint64_t histograms;        // uint32, kTahBins a sample: number of allocation tiles by entropy
  uint64_t zeroed;
  uint64_t thresholds;  // uint64, one a sample: 4 bits at this sort key and below
  uint64_t bins;        // ThresholdBin, one a sample
  uint64_t guesses;     // TahGuess, one a sample
  // uint64, room for all: sort keys of allocation tiles in bins near the threshold
  uint64_t candidates;
  uint64_t guessed;    // GuessedRun, one a run
  uint64_t fourths;    // uint64, one an allocation tile: its fourth plane, where it was guessed
  uint64_t entropies;  // float, one an allocation tile
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
