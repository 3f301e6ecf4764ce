// What the kernels share that encode the usual tensors: a thread has a whole tile, which is an
// allocation tile.
//
// A sample's choice of bits and its exponent are known only when all of it was seen, but a few of
// its tiles tell both nearly. So, in four kernels,
//   1. GuessKernel looks at some tiles of each sample and guesses the threshold of the entropies
//      and the exponent;
//   2. CodeKernel reads the tensor once, and writes what the blob has if the guesses are right. A
//      guessed exponent is wrong by a shift of the scales; fourth planes wait in scratch memory,
//      for their places follow from all choices;
//   3. ChooseKernel finds the threshold, counting anew where it is far from the guess;
//   4. CorrectKernel brings the fourth planes to their places, shifts scales, and codes anew those
//      tiles that got another number of bits, or that are of the few kinds that CodeKernel leaves
//      to the way of the general encoder (tile.cuh).
// What the guesses were makes no difference to the bytes.
#pragma once

#include "codec/cuda/module/sample_maxima.cuh"
#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/tah/cuda/encode.cuh"
#include "codec/tah/cuda/whole_tile.cuh"

namespace longhaul::codec::cuda {

// For a sample: 4 bits where the entropy lies in this bin or above, and its exponent. The threshold
// lies in bins from `lowest` to below `highest`, so that of those outside only the number above is
// counted, as if all were of the last bin: counting is what the caches do slowest.
struct alignas(16) TahGuess {
  uint32_t bin;
  int32_t exponent;
  uint32_t lowest, highest;
};

// Masks over a run's tiles: those coded with 4 bits; those whose codes are in the blob, unless the
// number of bits is another one or a scale or zero shifted below fp16's normal range.
struct GuessedRun {
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
  // What was guessed of a run of the tensor.
  __device__ GuessedRun& Guessed(uint32_t index) const {
    return Scratch<GuessedRun>(scratch_.guessed)[index];
  }
  __device__ uint2& GuessedFourth(uint64_t tensor_tile) const {
    return Scratch<uint2>(scratch_.fourths)[tensor_tile];
  }

  // Step 1 of tah/format.h for tiles of the tensor, eight at a time: each by its four lanes, all of
  // which get it.
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

// Queues ChooseKernel, where there is something to choose, and CorrectKernel
// (correct_whole.cu).
int CorrectWholeTiles(const TahArgs& args, const TahScratch& scratch, const Runs& runs,
                      cudaStream_t stream);

}  // namespace longhaul::codec::cuda
