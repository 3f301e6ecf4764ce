// ChooseKernel and CorrectKernel of encode_whole.cuh.
#include <algorithm>

#include "codec/tah/cuda/encode_whole.cuh"

namespace longhaul::codec::cuda {
namespace {

class Chooser : public WholeEncoder {
 public:
  // Groups that a block looks through together, one by each warp.
  static constexpr uint32_t kTogether = kThreads / kWarp;
  struct Shared {
    ThresholdBin bin;
    uint32_t candidates, first_key;
    bool last;
    uint32_t tiles[kTogether * kTahGroup];  // candidates
    union {
      uint32_t counts[kTahBins];
      uint64_t keys[kTahBins / 2];
    };
  };

  __device__ Chooser(const TahArgs& args, const TahScratch& scratch, const Runs& runs,
                     Shared* shared)
      : WholeEncoder(args, scratch, runs), shared_(*shared) {}

  // By a block: its part of a sample; the last block to end one finds the sample's threshold.
  __device__ void Run(uint32_t sample, uint32_t part, uint32_t parts) const {
    const SampleChoice choice = Choice(sample);
    FindBinOf(sample, choice);  // every block for itself
    const auto groups = static_cast<uint32_t>(TahScratch::Groups(args_.allocs));
    const uint32_t share = (groups + parts - 1) / parts;
    const uint32_t end = min((part + 1) * share, groups);
    for (uint32_t first = part * share; first < end; first += kTogether) {
      if (threadIdx.x == 0) shared_.candidates = 0;
      __syncthreads();
      const uint32_t group = first + threadIdx.x / kWarp;
      if (group < end) Collect(choice, group);
      __syncthreads();
      if (threadIdx.x == 0 && shared_.candidates != 0) {
        shared_.first_key = atomicAdd(choice.candidate_count_dev, shared_.candidates);
      }
      __syncthreads();
      PutCandidates(choice, uint64_t{sample} * args_.tiles);
      __syncthreads();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      FenceOfGpu();
      shared_.last = atomicAdd(Scratch<uint32_t>(scratch_.done) + sample, 1u) + 1 == parts;
      FenceOfGpu();
    }
    __syncthreads();
    if (shared_.last) {
      Select(choice, shared_.bin, shared_.keys);
      KeepEntropies(choice);
    }
  }

 private:
  // What the block wrote before a barrier is seen by who sees what this thread writes next; lighter
  // than __threadfence.
  __device__ static void FenceOfGpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

  __device__ void FindBinOf(uint32_t sample, const SampleChoice& choice) const {
    const TahGuess guess = GuessOf(sample);
    if (threadIdx.x == 0) shared_.bin.bin = kTahBins;
    __syncthreads();
    FindBin(choice, &shared_.bin);
    __syncthreads();
    const uint32_t bin = shared_.bin.bin;
    const bool all_above_counted = guess.highest == kTahBins || bin + choice.margin < guess.highest;
    if (bin >= guess.lowest && bin < kTahBins && all_above_counted) return;
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < kTahBins; k += kThreads) shared_.counts[k] = 0;
    __syncthreads();
    for (uint64_t k = threadIdx.x; k < choice.allocs; k += kThreads) {
      atomicAdd(shared_.counts + choice.bins.BinOf(choice.entropies_dev[k]), 1u);
    }
    __syncthreads();
    FindBin(shared_.counts, choice.fours, choice.margin, &shared_.bin);
  }

  // Step 2 of tah/format.h up to the candidates, for a group of the sample.
  __device__ void Collect(const SampleChoice& choice, uint32_t group) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t first = group * kTahGroup + lane;
    const auto left =
        static_cast<uint32_t>(min(choice.allocs - group * kTahGroup, uint64_t{kTahGroup}));
    const float* const recorded = choice.entropies_dev + first;
    float estimates[kGroupRuns];
#pragma unroll
    for (uint32_t k = 0; k < kGroupRuns; ++k) {
      estimates[k] = k * kWarp + lane < left ? recorded[k * kWarp] : 0.0f;
    }
    uint32_t surely = 0;
    uint32_t number = 0;
    uint32_t maybe[kGroupRuns];
#pragma unroll
    for (uint32_t k = 0; k < kGroupRuns; ++k) {
      const bool there = k * kWarp + lane < left;
      const int beside = BesideCandidates(choice, shared_.bin.bin, estimates[k]);
      surely += __popc(__ballot_sync(kAllLanes, there && beside > 0));
      maybe[k] = __ballot_sync(kAllLanes, there && beside == 0);
      number += __popc(maybe[k]);
    }
    uint32_t place = 0;
    if (lane == 0) {
      choice.group_counts_dev[group] = surely;
      place = atomicAdd(&shared_.candidates, number);
    }
    place = __shfl_sync(kAllLanes, place, 0);
#pragma unroll
    for (uint32_t k = 0; k < kGroupRuns; ++k) {
      if ((maybe[k] >> lane & 1) != 0) {
        shared_.tiles[place + __popc(maybe[k] & ((1u << lane) - 1))] = first + k * kWarp;
      }
      place += __popc(maybe[k]);
    }
  }

  // The keys of the block's candidates, by their exact entropies.
  __device__ void PutCandidates(const SampleChoice& choice, uint64_t tensor_tile) const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    const uint32_t count = shared_.candidates;
    for (uint32_t first = threadIdx.x / kWarp * (kWarp / kLanes); first < count;
         first += kThreads / kLanes) {
      const uint32_t mine = first + threadIdx.x % kWarp / kLanes;
      const uint32_t alloc = shared_.tiles[min(mine, count - 1)];
      const float entropy = ExactEntropy(tensor_tile + alloc);
      if (mine < count && threadIdx.x % kLanes == 0) {
        choice.candidates_dev[shared_.first_key + mine] = CandidateKey(entropy, alloc);
      }
    }
  }

  // Writes the candidates' entropies over the estimates. Until all blocks have ended, others may
  // still count the estimates.
  __device__ void KeepEntropies(const SampleChoice& choice) const {
    const uint32_t candidates = __ldcg(choice.candidate_count_dev);
    for (uint32_t k = threadIdx.x; k < candidates; k += kThreads) {
      const uint64_t key = __ldcg(choice.candidates_dev + k);
      choice.entropies_dev[static_cast<uint32_t>(key)] = EntropyOfKey(key);
    }
  }

  Shared& shared_;
};

class Corrector : public WholeEncoder {
 public:
  // Runs of a sample that a block corrects together, as many that follow each other by each warp.
  static constexpr uint32_t kRuns = 64;
  struct Shared {
    uint32_t others;
    struct Other {
      uint32_t tile;  // of the sample
      uint32_t slot;
    } tiles[kRuns * kWarp];
  };

  __device__ Corrector(const TahArgs& args, const TahScratch& scratch, const Runs& runs,
                       uint32_t sample, Shared* shared)
      : WholeEncoder(args, scratch, runs),
        shared_(*shared),
        sample_(sample),
        first_tile_(sample * args.tiles) {}

  // By a block.
  __device__ void Run(uint32_t first_of_block) const {
    if (threadIdx.x == 0) shared_.others = 0;
    __syncthreads();
    const uint32_t first = first_of_block + threadIdx.x / kWarp * kOfWarp;
    if (first < runs_.of_sample.value) CorrectRuns(first);
    __syncthreads();
    CodeOthers();
  }

 private:
  static constexpr uint32_t kOfWarp = kRuns / (kThreads / kWarp);
  static_assert(kGroupRuns == kOfWarp);
  static constexpr uint32_t kHalfExponent = 0x7c00, kHalfExponentShift = 10;

  // Whatever is in memory about a run and this lane's tile of it is read before anything is done
  // with it.
  __device__ void CorrectRuns(uint32_t first) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const SampleChoice choice = Choice(sample_);
    const auto* const all_guessed = &Guessed(sample_ * runs_.of_sample.value + first);
    const uint2* const all_fourths = &GuessedFourth(first_tile_ + first * kWarp);
    const float* const all_entropies = choice.entropies_dev + first * kWarp;
    const auto runs = min(runs_.of_sample.value - first, kOfWarp);
    const auto tiles =
        static_cast<uint32_t>(min(args_.tiles - first * kWarp, uint64_t{kOfWarp * kWarp}));
    // Lane k has run k's.
    const GuessedRun all = lane < runs ? all_guessed[lane] : GuessedRun{};
    uint2 fourths[kOfWarp];
    float entropies[kOfWarp];
    const uint32_t part_of_largest = maxima_.Part(sample_);
    const int guessed_exponent = GuessOf(sample_).exponent;
    const uint64_t threshold = choose_ ? *choice.threshold_dev : 0;
    uint32_t before = choose_ ? choice.group_counts_dev[first / kGroupRuns] : first * kWarp;
#pragma unroll
    for (uint32_t k = 0; k < kOfWarp; ++k) {
      if (k * kWarp + lane < tiles) {
        // Not written where 3 bits were guessed, and not used then.
        fourths[k] = all_fourths[k * kWarp + lane];
        if (choose_) entropies[k] = all_entropies[k * kWarp + lane];
      }
    }
    const int exponent =
        SampleExponent(__reduce_max_sync(kAllLanes, part_of_largest), args_.top_exponent);
    if (first == 0 && lane == 0) {
      reinterpret_cast<int16_t*>(payload_)[sample_] = static_cast<int16_t>(exponent);
    }
    const int shift = guessed_exponent - exponent;
#pragma unroll
    for (uint32_t k = 0; k < kOfWarp; ++k) {
      if (k >= runs) break;
      const uint32_t tile = (first + k) * kWarp + lane;
      const bool there = k * kWarp + lane < tiles;
      const bool four =
          there && (choose_ ? CandidateKey(entropies[k], tile) <= threshold : args_.fours > 0);
      const uint32_t word = __ballot_sync(kAllLanes, four);
      PutPrecision(first + k, word);
      const uint32_t slot = four ? before + __popc(word & ((1u << lane) - 1)) : kNoSlot;
      before += __popc(word);
      const uint32_t coded = __shfl_sync(kAllLanes, all.coded, k);
      const uint32_t fours = __shfl_sync(kAllLanes, all.fours, k);
      bool right = ((coded & ~(fours ^ word)) >> lane & 1) != 0;
      if (shift != 0 && right) right = ShiftScale(first_tile_ + tile, shift);
      if (right && four) {
        *reinterpret_cast<uint2*>(FourthPlane(sample_, slot, 0)) = fourths[k];
      }
      PutOthers(tile, slot, there && !right);
    }
  }

  __device__ void PutPrecision(uint32_t run, uint32_t word) const {
    const uint32_t lane = threadIdx.x % kWarp;
    auto* const words =
        reinterpret_cast<uint32_t*>(payload_ + args_.precision + sample_ * args_.precision_bytes);
    if (lane == 0) words[run] = word;
    // Whole words of 64.
    if (lane == 1 && run + 1 == runs_.of_sample.value && run % 2 == 0) words[run + 1] = 0;
  }

  __device__ void PutOthers(uint32_t tile, uint32_t slot, bool wanted) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t mask = __ballot_sync(kAllLanes, wanted);
    if (mask == 0) return;
    uint32_t place = 0;
    if (lane == 0) place = atomicAdd(&shared_.others, __popc(mask));
    place = __shfl_sync(kAllLanes, place, 0) + __popc(mask & ((1u << lane) - 1));
    if (wanted) shared_.tiles[place] = {tile, slot};
  }

  // Brings scale and zero from the guessed exponent to the one `shift` below. False where that is
  // not a shift of theirs: one would leave fp16's normal range, where it has fewer bits.
  __device__ bool ShiftScale(uint64_t tile, int shift) const {
    auto& scale = reinterpret_cast<uint16_t*>(payload_ + args_.scales)[tile];
    auto& zero = reinterpret_cast<uint16_t*>(payload_ + args_.zeros)[tile];
    const auto shifts = [&](uint32_t half) {
      return static_cast<int>((half & kHalfExponent) >> kHalfExponentShift) > shift;
    };
    const bool no_zero = (zero & 0x7fff) == 0;
    if (shift < 0 || !shifts(scale) || (!no_zero && !shifts(zero))) return false;
    const auto by = static_cast<uint32_t>(shift) << kHalfExponentShift;
    scale = static_cast<uint16_t>(scale - by);
    if (!no_zero) zero = static_cast<uint16_t>(zero - by);
    return true;
  }

  // Eight at a time by a warp.
  __device__ void CodeOthers() const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    constexpr uint32_t kTogether = kWarp / kLanes;
    const uint32_t lane = threadIdx.x % kLanes;
    const uint32_t others = shared_.others;
    if (others == 0) return;
    const ScaleUp scale_up(SampleExponent(maxima_.Of(sample_), args_.top_exponent));
    unsigned nonfinite = 0;
    for (uint32_t first = threadIdx.x / kWarp * kTogether; first < others;
         first += kTogether * (kThreads / kWarp)) {
      const uint32_t mine = first + threadIdx.x % kWarp / kLanes;
      const bool there = mine < others;
      const Shared::Other other = shared_.tiles[there ? mine : first];
      const uint64_t element = (first_tile_ + other.tile) * kTile;
      Lane values;
      LoadLane(args_.tensor, true, {element, kTile}, InARow(lane), &values);
      const CodedTile coded =
          CodeTile<kTile, false>(args_, scale_up, other.slot != kNoSlot, element, &values);
      if (!there) continue;
      if (other.slot != kNoSlot) {
        reinterpret_cast<uint16_t*>(FourthPlane(sample_, other.slot, 0))[lane] =
            static_cast<uint16_t>(coded.planes[1] >> 16);
      }
      if (!PutTile(sample_, other.tile, coded)) ++nonfinite;
    }
    CountNonfinite(nonfinite);
  }

  Shared& shared_;
  const uint32_t sample_;
  const uint64_t first_tile_;
};

__global__ void __launch_bounds__(kThreads, 4)
    ChooseKernel(const __grid_constant__ TahArgs args, const __grid_constant__ TahScratch scratch,
                 const __grid_constant__ Runs runs, uint32_t parts) {
  __shared__ Chooser::Shared shared;
  AwaitKernelBefore();
  const uint32_t sample = blockIdx.x / parts;
  Chooser(args, scratch, runs, &shared).Run(sample, blockIdx.x - sample * parts, parts);
  LetNextKernelBegin();
}

__global__ void __launch_bounds__(kThreads, 4)
    CorrectKernel(const __grid_constant__ TahArgs args, const __grid_constant__ TahScratch scratch,
                  const __grid_constant__ Runs runs, uint32_t parts) {
  __shared__ Corrector::Shared shared;
  AwaitKernelBefore();
  const uint32_t sample = blockIdx.x / parts;
  Corrector(args, scratch, runs, sample, &shared)
      .Run((blockIdx.x - sample * parts) * Corrector::kRuns);
}

// Blocks that choose for a sample: about as many as an H100 runs at once, but with a group for
// every warp.
uint32_t ChoosingBlocks(const TahArgs& args) {
  constexpr uint32_t kBlocks = 520;
  const uint64_t groups = TahScratch::Groups(args.allocs);
  return std::clamp(kBlocks / args.tensor.samples, 1u,
                    static_cast<uint32_t>((groups - 1) / Chooser::kTogether + 1));
}

}  // namespace

int CorrectWholeTiles(const TahArgs& args, const TahScratch& scratch, const Runs& runs,
                      cudaStream_t stream) {
  const uint32_t samples = args.tensor.samples;
  if (args.fours > 0 && args.fours < args.allocs) {
    const uint32_t parts = ChoosingBlocks(args);
    if (const int error = LaunchNext(ChooseKernel, {samples * parts, kThreads, 0}, stream, args,
                                     scratch, runs, parts);
        error != 0) {
      return error;
    }
  }
  const uint32_t parts = (runs.of_sample.value - 1) / Corrector::kRuns + 1;
  return LaunchNext(CorrectKernel, {samples * parts, kThreads, 0}, stream, args, scratch, runs,
                    parts);
}

}  // namespace longhaul::codec::cuda
