// GuessKernel and CodeKernel of encode_whole.cuh.
#include <algorithm>

#include "codec/tah/cuda/encode_whole.cuh"

namespace longhaul::codec::cuda {
namespace {

// Tiles of a sample that a guess looks at, one a thread: it is wrong for about 0.8 sqrt(p (1 - p) /
// kThreads) of them, 2 % at p = 0.8.
constexpr uint32_t kLookedAt = kThreads;

struct TileInMemory {
  __device__ uint4 Unit(uint32_t unit) const { return units_dev[unit]; }

  const uint4* units_dev;
};

class Guesser : public WholeEncoder {
 public:
  using WholeEncoder::WholeEncoder;

  // By a block.
  __device__ void Run(uint32_t sample) const {
    __shared__ uint32_t shared_largest;
    __shared__ TahGuess shared_guess;
    __shared__ uint4 shared_counts[kTahBins / 4];
    auto* const counts = reinterpret_cast<uint32_t*>(shared_counts);
    for (uint32_t k = threadIdx.x; k < kTahBins / 4; k += kThreads)
      shared_counts[k] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) {
      shared_largest = 0;
      shared_guess = {args_.fours > 0 ? 0 : kTahBins, 0, 0, kTahBins};
    }
    __syncthreads();
    const TileSurvey survey(
        TileInMemory{static_cast<const uint4*>(args_.tensor.data_dev) +
                     (sample * args_.tiles + TileAt(threadIdx.x)) * kTileUnits});
    const bool finite = survey.Largest() < kF32Infinity;
    // What is no number falls into the lowest bin.
    if (choose_) {
      atomicAdd(counts + MakeBins(kTile).BinOf(finite ? survey.Entropy() : 0.0f), 1u);
    }
    const uint32_t largest = __reduce_max_sync(kAllLanes, finite ? survey.Largest() : 0);
    if (threadIdx.x % kWarp == 0) atomicMax(&shared_largest, largest);
    __syncthreads();
    if (choose_) {
      // Five times the error of a rank.
      constexpr uint32_t kFar = kLookedAt / 8;
      const auto rank = static_cast<uint32_t>(
          max((kLookedAt * args_.fours + args_.allocs / 2) / args_.allocs, uint64_t{1}));
      const RankedBins bins(counts);
      bins.Find(rank, [&](uint32_t bin, uint32_t) { shared_guess.bin = bin; });
      bins.Find(rank + kFar, [&](uint32_t bin, uint32_t) { shared_guess.lowest = bin; });
      if (rank > kFar) {
        bins.Find(rank - kFar, [&](uint32_t bin, uint32_t) { shared_guess.highest = bin + 1; });
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      shared_guess.exponent = SampleExponent(shared_largest, args_.top_exponent);
      GuessOf(sample) = shared_guess;
    }
  }

 private:
  // One of each of kLookedAt equal parts of a sample, not all at the same place.
  __device__ uint64_t TileAt(uint32_t part) const {
    const uint64_t first = part * args_.tiles / kLookedAt;
    const uint64_t end = (part + 1) * args_.tiles / kLookedAt;
    constexpr uint32_t kGolden = 0x9e3779b1;
    const auto size = static_cast<uint32_t>(max(end - first, uint64_t{1}));
    return min(first + __umulhi(part * kGolden, size), args_.tiles - 1);
  }
};

class Coder : public WholeEncoder {
 public:
  // For each warp the tiles that it codes and those that it codes next.
  static constexpr uint32_t kUnits = kWarp * kTileUnits;
  static constexpr size_t kSharedBytes = kThreads / kWarp * 2 * kUnits * sizeof(uint4);

  __device__ Coder(const TahArgs& args, const TahScratch& scratch, const Runs& runs, uint4* shared)
      : WholeEncoder(args, scratch, runs), shared_(shared + threadIdx.x / kWarp * 2 * kUnits) {}

  // By a warp. Its runs follow each other, so that it seldom asks about a sample or tells of one:
  // all warps that did so for the same samples would queue at the same words.
  __device__ void Run() {
    const uint64_t warps = uint64_t{gridDim.x} * (kThreads / kWarp);
    const uint64_t warp = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
    auto index = static_cast<uint32_t>(warp * runs_.all / warps);
    const auto end = static_cast<uint32_t>((warp + 1) * runs_.all / warps);
    uint4* here = shared_;
    uint4* there = shared_ + kUnits;
    Load(here, index, end);
    Load(there, index + 1, end);
    AwaitKernelBefore();
    for (; index < end; ++index) {
      const cuda::Run run(runs_, index);
      if (run.sample != sample_) {
        TellOfSample();
        sample_ = run.sample;
        guess_ = GuessOf(sample_);
        largest_ = above_ = 0;
      }
      WarpTiles::Await<1>();
      Code(index, run, WarpTiles(here));
      __syncwarp();
      Load(here, index + 2, end);
      uint4* const free = there;
      there = here;
      here = free;
    }
    TellOfSample();
    LetNextKernelBegin();
  }

 private:
  static constexpr uint32_t kNoSample = 0xffffffff;

  __device__ void Load(uint4* to, uint32_t index, uint32_t end) const {
    if (index < end) {
      const cuda::Run run(runs_, index);
      WarpTiles(to).Load(args_.tensor.data_dev, run.tensor_tile, run.count);
    }
    WarpTiles::Commit();
  }

  __device__ uint32_t* CountOf(uint32_t bin) const {
    return Scratch<uint32_t>(scratch_.histograms) + uint64_t{sample_} * kTahBins + PlaceOfBin(bin);
  }

  // What this warp knows of sample_.
  __device__ void TellOfSample() const {
    if (sample_ == kNoSample) return;
    const uint32_t largest = __reduce_max_sync(kAllLanes, largest_);
    if (threadIdx.x % kWarp != 0) return;
    if (largest != 0) maxima_.Raise(sample_, blockIdx.x, largest);
    if (above_ != 0) atomicAdd(CountOf(kTahBins - 1), above_);
  }

  __device__ void Code(uint32_t index, const cuda::Run& run, const WarpTiles& tiles) {
    const uint32_t lane = threadIdx.x % kWarp;
    const bool there = lane < run.count;
    const TileSurvey survey(tiles);
    const float entropy = choose_ ? EntropyOf(run, there, survey) : 0.0f;
    const uint32_t bin = MakeBins(kTile).BinOf(entropy);
    WriteGuessed(index, run, tiles, survey, there && bin >= guess_.bin);
    if (there && survey.Largest() < kF32Infinity) largest_ = max(largest_, survey.Largest());
    if (!choose_) return;
    if (there) Scratch<float>(scratch_.entropies)[run.tensor_tile + lane] = entropy;
    const bool above = there && bin >= guess_.highest;
    above_ += __popc(__ballot_sync(kAllLanes, above));
    if (there && !above && bin >= guess_.lowest) atomicAdd(CountOf(bin), 1u);
  }

  __device__ void WriteGuessed(uint32_t index, const cuda::Run& run, const WarpTiles& tiles,
                               const TileSurvey& survey, bool four) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const float top = four ? 15.0f : 7.0f;
    const ScaleUp scale_up(guess_.exponent);
    const Range range = survey.Scaled(scale_up.first);
    const uint16_t zero = ToHalf(range.low + 0.0f);
    const uint16_t scale =
        ToHalf(Divide(range.high + 0.0f - (range.low + 0.0f), top, four ? 1.0f / 15 : 1.0f / 7));
    const Quantizer quantizer{FromHalf(zero), FromHalf(scale), __frcp_rn(FromHalf(scale))};
    // An infinity or a NaN makes the largest one or a NaN, and no comparison with that is true.
    bool coded = lane < run.count && range.largest < 65536 &&
                 range.largest <= args_.tau * range.second && scale_up.second == 1 &&
                 quantizer.Fits(range, top);
    const bool unless_tiny = coded && !quantizer.FitsTiny();
    if (__any_sync(kAllLanes, unless_tiny)) {
      const bool tiny = SmallestMagnitude(tiles) * scale_up.first < quantizer.scale * 0x1p-7f;
      coded = coded && !(unless_tiny && tiny);
    }
    const GuessedRun guessed{__ballot_sync(kAllLanes, four), __ballot_sync(kAllLanes, coded)};
    if (lane == 0) Guessed(index) = guessed;
    if (guessed.coded == 0) return;
    uint32_t planes[4][2];
    MakePlanes(tiles, quantizer, scale_up.first, planes);
    PutCodes(run, tiles, planes, guessed.coded);
    if (coded) {
      const uint64_t tile = run.tensor_tile + lane;
      reinterpret_cast<uint16_t*>(payload_ + args_.scales)[tile] = scale;
      reinterpret_cast<uint16_t*>(payload_ + args_.zeros)[tile] = zero;
      if (four) GuessedFourth(tile) = make_uint2(planes[3][0], planes[3][1]);
    }
  }

  __device__ float EntropyOf(const cuda::Run& run, bool there, const TileSurvey& survey) const {
    const uint32_t largest = survey.Largest();
    const bool usual = largest >= __float_as_uint(Pow2(-kEstimatedExponents)) &&
                       largest < __float_as_uint(Pow2(kEstimatedExponents));
    const float entropy = largest == 0 ? 0.0f : survey.Entropy();
    const bool exactly = there && !usual && largest != 0;
    return __any_sync(kAllLanes, exactly) ? Refine(run, entropy, exactly) : entropy;
  }

  // Step 1 of tah/format.h for those of a run's tiles whose lanes say so; others keep `entropy`.
  __device__ float Refine(const cuda::Run& run, float entropy, bool wanted) const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    const uint32_t lane = threadIdx.x % kWarp;
    uint32_t left = __ballot_sync(kAllLanes, wanted);
    while (left != 0) {
      const uint32_t tile = TakeTile<kLanes>(&left);
      const float exact = ExactEntropy(run.tensor_tile + tile % kWarp);
#pragma unroll
      for (uint32_t k = 0; k < kWarp / kLanes; ++k) {
        const float of_k = __shfl_sync(kAllLanes, exact, static_cast<int>(k * kLanes));
        if (__shfl_sync(kAllLanes, tile, static_cast<int>(k * kLanes)) == lane) entropy = of_k;
      }
    }
    return entropy;
  }

  // The lower planes of the tiles of a mask over the warp's, through shared memory, so that lanes
  // write beside each other.
  __device__ void PutCodes(const cuda::Run& run, const WarpTiles& tiles,
                           const uint32_t (&planes)[4][2], uint32_t mask) const {
    constexpr uint32_t kPlanes = 3;
    const uint32_t lane = threadIdx.x % kWarp;
    __syncwarp();  // all have read their tiles
    auto* const shared = reinterpret_cast<uint2*>(tiles.At(0, 0));
#pragma unroll
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      shared[lane * kPlanes + plane] = make_uint2(planes[plane][0], planes[plane][1]);
    }
    __syncwarp();
    auto* const to =
        reinterpret_cast<uint2*>(payload_ + args_.codes + run.tensor_tile * (kPlanes * kTile / 8));
#pragma unroll
    for (uint32_t k = 0; k < kPlanes; ++k) {
      const uint32_t at = k * kWarp + lane;
      if ((mask >> at / kPlanes & 1) != 0) to[at] = shared[at];
    }
  }

  uint4* const shared_;
  uint32_t sample_ = kNoSample;
  TahGuess guess_{};
  uint32_t largest_ = 0;  // of sample_: bits of the largest magnitude in this lane's tiles
  uint32_t above_ = 0;    // and the warp's tiles of bins that are not counted one by one
};

// A block for each sample, and others for the beginning.
__global__ void __launch_bounds__(kThreads)
    GuessKernel(const __grid_constant__ TahArgs args, const __grid_constant__ TahScratch scratch,
                const __grid_constant__ Runs runs, const __grid_constant__ Beginning beginning) {
  LetNextKernelBegin();
  const uint32_t samples = args.tensor.samples;
  if (blockIdx.x < samples) {
    Guesser(args, scratch, runs).Run(blockIdx.x);
  } else {
    WriteBeginning(beginning, blockIdx.x - samples, gridDim.x - samples);
  }
}

__global__ void __launch_bounds__(kThreads, 3)
    CodeKernel(const __grid_constant__ TahArgs args, const __grid_constant__ TahScratch scratch,
               const __grid_constant__ Runs runs) {
  extern __shared__ uint4 shared[];
  Coder(args, scratch, runs, shared).Run();
}

}  // namespace

int EncodeWholeTiles(const TahArgs& args, cudaStream_t stream) {
  const TahScratch scratch(args.tensor.samples, args.allocs);
  const Runs runs = MakeRuns(args.tensor.samples, args.tiles);
  const Beginning beginning = TahBeginning(args, scratch);
  GuessKernel<<<args.tensor.samples + BeginningBlocks(beginning), kThreads, 0, stream>>>(
      args, scratch, runs, beginning);
  if (const int error = Launched(); error != 0) return error;
  if (cudaFuncSetAttribute(CodeKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Coder::kSharedBytes) != cudaSuccess) {
    return Launched();
  }
  unsigned blocks = 1;
  if (const int error =
          ResidentBlocks(reinterpret_cast<const void*>(CodeKernel),
                         (runs.all - 1) / (kThreads / kWarp) + 1, &blocks, Coder::kSharedBytes);
      error != 0) {
    return error;
  }
  // More than run at once: processors are not equally quick.
  constexpr uint32_t kRounds = 3;
  blocks = std::min(kRounds * blocks, (runs.all - 1) / (kThreads / kWarp) + 1);
  if (const int error = LaunchNext(CodeKernel, {blocks, kThreads, Coder::kSharedBytes}, stream,
                                   args, scratch, runs);
      error != 0) {
    return error;
  }
  return CorrectWholeTiles(args, scratch, runs, stream);
}

}  // namespace longhaul::codec::cuda
