// Shared by the kernels that encode the most common tensors: each thread handles a whole tile, and
// a tile is an allocation tile (format.h).
//
// The number of bits of each tile and the sample's exponent are known only after the whole sample
// was read. A few tiles are enough to guess both. So four kernels encode a tensor:
//   1. GuessKernel reads some tiles of each sample, and guesses the threshold of the entropies and
//      the exponent.
//   2. CodeKernel reads the tensor once, and writes the blob as if the guesses were right. Fourth
//      planes go to scratch memory, because their places depend on the whole sample.
//   3. ChooseKernel finds the threshold. It counts the entropies again if the guess was far off.
//   4. CorrectKernel moves the fourth planes to their places. If the exponent was guessed wrong, it
//      shifts the scales. It encodes tiles again that got another number of bits, and the few kinds
//      of tiles that CodeKernel leaves to the steps of the general encoder (tile.cuh).
// The bytes of the blob do not depend on the guesses.
#pragma once

#include "codec/cuda/module/sample_maxima.cuh"
#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/tah/cuda/encode.cuh"
#include "codec/tah/cuda/whole_tile.cuh"

namespace longhaul::codec::cuda {

// The guesses for a sample.
struct alignas(16) TahGuess {
  uint32_t bin;      // tiles with entropies in this bin or a higher one get 4 bits
  int32_t exponent;  // c of format.h
  // The threshold is very likely in the bins [lowest, highest). CodeKernel counts only these bins
  // one by one, because counting in memory is slow. Higher entropies count for the last bin.
  uint32_t lowest, highest;
};

// Masks of a run's tiles (whole_tiles.cuh); bit k is tile k.
struct GuessedRun {
  // fours: tiles that CodeKernel encoded with 4 bits. coded: tiles with codes in the blob.
  // CorrectKernel must still encode such a tile again if the number of bits was wrong, or if
  // shifting moves its scale or zero below fp16's normal range.
  uint32_t fours, coded;
};

class WholeEncoder : public TahEncoder<kWholeTile> {
 public:
  __device__ WholeEncoder(const TahArgs& args, const TahScratch& scratch, const Runs& runs)
      : TahEncoder(args, scratch), runs_(runs), maxima_(args.scratch_dev + scratch.maxima) {}

 protected:
  static constexpr uint32_t kTile = kWholeTile;
  static constexpr uint32_t kGroupRuns = kTahGroup / kTahRun;

  __device__ SampleChoice Choice(uint32_t sample) const {
    SampleChoice choice = ChoiceOf(sample);
    choice.margin = 1;
    choice.group_size = kTahGroup;
    choice.group_counts_dev += sample * TahScratch::Groups(args_.allocs);
    return choice;
  }
  __device__ TahGuess& GuessOf(uint32_t sample) const {
    return Scratch<TahGuess>(scratch_.guesses)[sample];
  }
  // Returns the masks of run `index` of the tensor.
  __device__ GuessedRun& Guessed(uint32_t index) const {
    return Scratch<GuessedRun>(scratch_.guessed)[index];
  }
  __device__ uint2& GuessedFourth(uint64_t tensor_tile) const {
    return Scratch<uint2>(scratch_.fourths)[tensor_tile];
  }

  // Returns the entropy of step 1 of tah/format.h. A warp computes eight tiles at a time: four
  // lanes pass the same tile, and all four get the entropy. All lanes of the warp must call it.
  __device__ float ExactEntropy(uint64_t tensor_tile) const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    Lane mine;
    LoadLane(args_.tensor, true, {tensor_tile * kTile, kTile},
             OfBothHalves<kTile>(threadIdx.x % kLanes), &mine);
    const uint32_t largest = TileMax<kLanes>(mine.magnitude);
    const bool numbers = largest > 0 && largest < kF32Infinity;
    const ScaleUp scale(numbers ? 1 - FloorLog2(largest) : 0);
    const tah::cpu::EntropySums sums = TileSums<kTile>(mine.values, scale, nullptr);
    if (largest >= kF32Infinity) return __uint_as_float(0xff800000);
    return numbers ? tah::cpu::Entropy(sums) : 0.0f;
  }

  const Runs& runs_;
  const SampleMaxima maxima_;
};

// Queues ChooseKernel, unless all tiles have the same number of bits, and CorrectKernel
// (correct_whole.cu). Returns a code of the CUDA runtime, 0 for success.
int CorrectWholeTiles(const TahArgs& args, const TahScratch& scratch, const Runs& runs,
                      cudaStream_t stream);

}  // namespace longhaul::codec::cuda
