// The encoder of tah for the usual tensors: a thread has a whole tile, which is an allocation tile.
// It does without what few tiles need, and knows which do; those take the way of the general
// encoder (tah_tile.cuh), eight at a time.
#include <algorithm>

#include "codec/cuda/module/tah_encode.cuh"
#include "codec/cuda/module/tah_whole_tile.cuh"
#include "codec/cuda/module/whole_tiles.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kTile = kWholeTile;

// How far behind the survey a sample's other phases are, in runs; how many blocks select.
struct Distances {
  uint32_t collect, encode;
  Divisor sample_runs;
  uint32_t selectors;
};

constexpr uint32_t kSeen = 64;
struct Shared {
  // For each warp, those that it surveys and those that it codes.
  uint4 tiles[kThreads / kWarp][2][kWarp * kTileUnits];
  // What was last seen of the selection of a sample, by its number modulo kSeen: 4 times its number
  // and the tasks done.
  uint32_t seen[kSeen];
};

// In turn k a warp surveys run k of the tensor, finds the candidates of run k - collect and writes
// the codes of run k - encode; each warp takes every so manieth turn. The first blocks do none of
// that but find the threshold of each sample in between.
//
// All blocks run at once. No deadlock: a turn waits for nothing before its survey, then for surveys
// and then for candidates of turns before it alone.
class WholeEncoder : public TahEncoder<kTile> {
 public:
  __device__ WholeEncoder(const TahArgs& args, const TahScratch& scratch,
                          const Distances& distances, Shared* shared)
      : TahEncoder(args, scratch),
        distances_(distances),
        runs_(distances.sample_runs.value * args.tensor.samples),
        shared_(shared),
        surveyed_(shared->tiles[threadIdx.x / kWarp][0]),
        coded_(shared->tiles[threadIdx.x / kWarp][1]),
        backwards_(SampleBytes(args.tensor) > kLargeSample) {}

  // By a block.
  __device__ void Run() {
    if (threadIdx.x < kSeen) shared_->seen[threadIdx.x] = 0;
    __syncthreads();
    blockIdx.x < distances_.selectors ? SelectForAll() : TakeTurns();
  }

 private:
  static constexpr uint64_t kLargeSample = 24 << 20;
  static constexpr uint32_t kGroupRuns = 32;
  // What is counted for a sample, each in kCopies places: runs surveyed, runs collected, which add
  // up; tasks done by selectors, the same in all.
  enum Count : uint32_t { kSurveyed, kCollected, kSelected };
  static constexpr uint32_t kCopies = TahScratch::kCopies;

  struct Place {
    uint32_t sample, run;  // of the sample
    uint64_t first;        // tile of the sample
    uint64_t tensor_tile;
    uint32_t count;
  };
  __device__ Place PlaceOf(uint32_t tensor_run, bool backwards) const {
    const uint32_t sample = tensor_run / distances_.sample_runs;
    uint32_t run = tensor_run - sample * distances_.sample_runs.value;
    if (backwards) run = distances_.sample_runs.value - 1 - run;
    const uint64_t first = uint64_t{run} * kTahRun;
    return {sample, run, first, sample * args_.tiles + first,
            static_cast<uint32_t>(min(args_.allocs - first, uint64_t{kTahRun}))};
  }
  __device__ SampleChoice Choice(uint32_t sample) const {
    SampleChoice choice = ChoiceOf(sample);
    choice.margin = 1;
    choice.group_size = kGroupRuns * kTahRun;
    choice.group_counts_dev += sample * TahScratch::Groups(args_.allocs);
    choice.run_counts_dev =
        Scratch<uint32_t>(scratch_.run_counts) + uint64_t{sample} * distances_.sample_runs.value;
    return choice;
  }

  __device__ uint32_t* CountOf(uint32_t sample, Count what, uint32_t copy) const {
    return Scratch<uint32_t>(scratch_.signals + sample * TahScratch::kSignalBytes +
                             (what * kCopies + copy % kCopies) * TahScratch::kLine);
  }

  __device__ static uint32_t Acquire(const uint32_t* count) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(count) : "memory");
    return value;
  }
  __device__ static void Release() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

  // By a warp: counts one more of what it did.
  __device__ void Arrive(const Place& place, Count what) const {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      Release();
      atomicAdd(CountOf(place.sample, what, place.run), 1u);
    }
  }
  // By a warp, until all of a sample have arrived.
  __device__ void AwaitRuns(uint32_t sample, Count what) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t* const count = CountOf(sample, what, lane);
    while (__reduce_add_sync(kAllLanes, lane < kCopies ? Acquire(count) : 0) !=
           distances_.sample_runs.value) {
      __nanosleep(50);
    }
  }

  // By a warp, until `tasks` of the sample's selection are done. A block's warps leave for each
  // other what they saw.
  __device__ void AwaitSelectors(uint32_t sample, uint32_t tasks) const {
    if (threadIdx.x % kWarp == 0) {
      volatile uint32_t* const seen = shared_->seen + sample % kSeen;
      const uint32_t* const count = CountOf(sample, kSelected, blockIdx.x);
      uint32_t word = *seen;
      while (word / 4 != sample || word % 4 < tasks) {
        word = sample * 4 + Acquire(count);
        if (word % 4 >= tasks) {
          *seen = word;
        } else {
          __nanosleep(200);
          word = *seen;
        }
      }
      __threadfence_block();
    }
    __syncwarp();
  }

  __device__ void SelectForAll() {
    const uint32_t samples = args_.tensor.samples;
    // Two tasks a sample, in about the order in which they can be done.
    const uint32_t lag = distances_.collect / distances_.sample_runs.value;
    for (uint32_t task = blockIdx.x; task / 2 < samples + lag; task += distances_.selectors) {
      const bool last = task % 2 == 0;
      const uint32_t sample = last ? task / 2 - lag : task / 2;
      if (sample >= samples) continue;
      __syncthreads();
      if (threadIdx.x < kWarp) AwaitRuns(sample, last ? kCollected : kSurveyed);
      __syncthreads();
      if (choose_) {
        if (last) {
          Select(Choice(sample), reinterpret_cast<uint64_t*>(shared_->tiles),
                 sizeof(shared_->tiles) / sizeof(uint64_t));
        } else {
          FindBin(Choice(sample));
        }
      }
      Release();
      __syncthreads();
      if (threadIdx.x < kCopies) {
        Release();
        atomicExch(CountOf(sample, kSelected, threadIdx.x), last ? 2u : 1u);
      }
    }
  }

  __device__ void LoadSurveyed(uint32_t turn) const {
    if (turn < runs_) {
      const Place place = PlaceOf(turn, false);
      surveyed_.Load(args_.tensor.data_dev, place.tensor_tile, place.count);
    }
    WarpTiles::Commit();
  }
  __device__ void LoadCoded(uint32_t turn) const {
    if (turn - distances_.encode < runs_) {
      const Place place = PlaceOf(turn - distances_.encode, backwards_);
      coded_.Load(args_.tensor.data_dev, place.tensor_tile, place.count);
    }
    WarpTiles::Commit();
  }

  __device__ void TakeTurns() const {
    const uint32_t turns = runs_ + distances_.encode;
    const uint32_t blocks = gridDim.x - distances_.selectors;
    const uint32_t stride = blocks * (kThreads / kWarp);
    // Turns that follow each other are of different blocks.
    uint32_t turn = threadIdx.x / kWarp * blocks + blockIdx.x - distances_.selectors;
    LoadSurveyed(turn);
    LoadCoded(turn);
    for (; turn < turns; turn += stride) {
      WarpTiles::Await<1>();
      if (turn < runs_) {
        const Place place = PlaceOf(turn, false);
        Survey(place);
        Arrive(place, kSurveyed);
      }
      __syncwarp();
      LoadSurveyed(turn + stride);
      if (turn - distances_.collect < runs_) {
        const Place place = PlaceOf(turn - distances_.collect, false);
        AwaitSelectors(place.sample, 1);
        if (choose_) Collect(place);
        Arrive(place, kCollected);
      }
      WarpTiles::Await<1>();
      if (turn - distances_.encode < runs_) {
        const Place place = PlaceOf(turn - distances_.encode, backwards_);
        AwaitSelectors(place.sample, 2);
        Encode(place);
      }
      __syncwarp();
      LoadCoded(turn + stride);
    }
  }

  __device__ void Survey(const Place& place) const {
    const uint32_t lane = threadIdx.x % kWarp;
    uint32_t* const maximum = Scratch<uint32_t>(scratch_.maxima) + place.sample;
    // Most are below what was seen already: reading first spares their atomics.
    const uint32_t seen_maximum = lane == 0 ? __ldcg(maximum) : 0;
    const Estimate estimate(surveyed_);
    const bool there = lane < place.count;
    const uint32_t largest = there ? estimate.Largest() : 0;
    const uint32_t finite = __reduce_max_sync(kAllLanes, largest < kF32Infinity ? largest : 0);
    if (lane == 0 && finite > seen_maximum) atomicMax(maximum, finite);
    if (!choose_) return;
    const bool usual = largest >= __float_as_uint(Pow2(-kEstimatedExponents)) &&
                       largest < __float_as_uint(Pow2(kEstimatedExponents));
    const float entropy = Refine(place, estimate.Entropy(), there && !usual);
    if (there) Record(Choice(place.sample), static_cast<uint32_t>(place.first) + lane, entropy);
  }

  // Step 2 of tah/format.h up to the candidates.
  __device__ void Collect(const Place& place) const {
    const SampleChoice choice = Choice(place.sample);
    const uint32_t lane = threadIdx.x % kWarp;
    const bool there = lane < place.count;
    const uint32_t threshold_bin = __ldcg(&choice.bin_dev->bin);
    float* const recorded = choice.entropies_dev + place.first + lane;
    const float estimate = there ? __ldcg(recorded) : 0;
    const int beside = BesideCandidates(choice, threshold_bin, estimate);
    const bool candidate = there && beside == 0;
    const float entropy = Refine(place, estimate, candidate);
    if (candidate) *recorded = entropy;
    PutCandidates(choice, place.first + lane, entropy, candidate);
    const uint32_t surely = __ballot_sync(kAllLanes, there && beside > 0);
    if (lane == 0) {
      choice.run_counts_dev[place.run] = __popc(surely);
      atomicAdd(choice.group_counts_dev + place.run / kGroupRuns, __popc(surely));
    }
  }

  // The rest of step 2 for a run: its precision bits, and this lane's slot.
  __device__ uint32_t FindSlot(const Place& place) const {
    const SampleChoice choice = Choice(place.sample);
    const uint32_t lane = threadIdx.x % kWarp;
    const bool there = lane < place.count;
    bool four = there && args_.fours > 0;
    auto before = static_cast<uint32_t>(place.first);
    if (choose_) {
      const auto alloc = static_cast<uint32_t>(place.first) + lane;
      const uint32_t in_group = place.run % kGroupRuns;
      const uint32_t count =
          lane < in_group ? __ldcg(choice.run_counts_dev + place.run - in_group + lane) : 0;
      before = __ldcg(choice.group_counts_dev + place.run / kGroupRuns);
      four = there && CandidateKey(__ldcg(choice.entropies_dev + alloc), alloc) <=
                          __ldcg(choice.threshold_dev);
      before += __reduce_add_sync(kAllLanes, count);
    }
    const uint32_t word = __ballot_sync(kAllLanes, four);
    auto* const words = reinterpret_cast<uint32_t*>(payload_ + args_.precision +
                                                    place.sample * args_.precision_bytes);
    if (lane == 0) words[place.run] = word;
    // Whole words of 64.
    if (lane == 1 && place.run + 1 == distances_.sample_runs.value && place.run % 2 == 0) {
      words[place.run + 1] = 0;
    }
    return four ? before + __popc(word & ((1u << lane) - 1)) : kNoSlot;
  }

  // Step 1 for those of a warp's tiles whose lanes say so; others keep `entropy`.
  __device__ float Refine(const Place& place, float entropy, bool wanted) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const auto* const data = static_cast<const uint16_t*>(args_.tensor.data_dev);
    for (uint32_t left = __ballot_sync(kAllLanes, wanted); left != 0; left &= left - 1) {
      const uint32_t tile = __ffs(static_cast<int>(left)) - 1;
      const uint16_t* const x = data + (place.tensor_tile + tile) * kTile;
      const uint32_t low = (x[lane] & 0x7fffu) << 16;
      const uint32_t high = (x[lane + kTile / 2] & 0x7fffu) << 16;
      const uint32_t largest = __reduce_max_sync(kAllLanes, max(low, high));
      const bool numbers = largest > 0 && largest < kF32Infinity;
      const ScaleUp scale(numbers ? 1 - FloorLog2(largest) : 0);
      const float y0 = scale(__uint_as_float(low));
      const float y1 = scale(__uint_as_float(high));
      float n = y0 + y1;
      float l = y0 * tah::cpu::Log2(y0) + y1 * tah::cpu::Log2(y1);
#pragma unroll
      for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        n = n + __shfl_xor_sync(kAllLanes, n, distance);
        l = l + __shfl_xor_sync(kAllLanes, l, distance);
      }
      float exact = numbers ? tah::cpu::Entropy({n, l}) : 0.0f;
      if (largest >= kF32Infinity) exact = __uint_as_float(0xff800000);
      if (lane == tile) entropy = exact;
    }
    return entropy;
  }

  __device__ void Encode(const Place& place) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const bool there = lane < place.count;
    const uint32_t slot = FindSlot(place);
    const int exponent = SampleExponent(__ldcg(Scratch<uint32_t>(scratch_.maxima) + place.sample),
                                        args_.top_exponent);
    if (place.run == 0 && lane == 0) {
      reinterpret_cast<int16_t*>(payload_)[place.sample] = static_cast<int16_t>(exponent);
    }
    const ScaleUp scale_up(exponent);
    const Range range = FindRange(coded_, scale_up.first);
    const float top = slot != kNoSlot ? 15.0f : 7.0f;
    const uint16_t zero = ToHalf(range.low + 0.0f);
    const uint16_t scale = ToHalf(Divide(range.high + 0.0f - (range.low + 0.0f), top,
                                         slot != kNoSlot ? 1.0f / 15 : 1.0f / 7));
    const Quantizer quantizer{FromHalf(zero), FromHalf(scale), __frcp_rn(FromHalf(scale))};
    // An infinity or a NaN makes the largest one or a NaN, and no comparison with that is true.
    bool simple = there && range.largest < 65536 && range.largest <= args_.tau * range.second &&
                  scale_up.second == 1 && quantizer.Fits(range, top);
    const bool unless_tiny = simple && !quantizer.FitsTiny();
    if (__any_sync(kAllLanes, unless_tiny)) {
      const bool tiny = SmallestMagnitude(coded_) * scale_up.first < quantizer.scale * 0x1p-7f;
      simple = simple && !(unless_tiny && tiny);
    }
    const uint32_t simple_tiles = __ballot_sync(kAllLanes, simple);
    if (simple_tiles != 0) {
      uint32_t planes[4][2];
      MakePlanes(coded_, quantizer, scale_up.first, planes);
      PutCodes(place, planes, simple_tiles);
      if (simple) {
        const uint64_t tile = place.tensor_tile + lane;
        reinterpret_cast<uint16_t*>(payload_ + args_.scales)[tile] = scale;
        reinterpret_cast<uint16_t*>(payload_ + args_.zeros)[tile] = zero;
        if (slot != kNoSlot) {
          *reinterpret_cast<uint2*>(FourthPlane(place.sample, slot, 0)) =
              make_uint2(planes[3][0], planes[3][1]);
        }
      }
    }
    EncodeOthers(place, scale_up, slot, __ballot_sync(kAllLanes, there && !simple));
  }

  // The lower planes of the tiles of a mask over the warp's, through shared memory, so that lanes
  // write beside each other.
  __device__ void PutCodes(const Place& place, const uint32_t (&planes)[4][2],
                           uint32_t tiles) const {
    constexpr uint32_t kPlanes = 3;
    const uint32_t lane = threadIdx.x % kWarp;
    __syncwarp();  // all have read their tiles
    auto* const shared = reinterpret_cast<uint2*>(coded_.At(0, 0));
#pragma unroll
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      shared[lane * kPlanes + plane] = make_uint2(planes[plane][0], planes[plane][1]);
    }
    __syncwarp();
    auto* const to = reinterpret_cast<uint2*>(payload_ + args_.codes +
                                              place.tensor_tile * (kPlanes * kTile / 8));
#pragma unroll
    for (uint32_t k = 0; k < kPlanes; ++k) {
      const uint32_t at = k * kWarp + lane;
      if ((tiles >> at / kPlanes & 1) != 0) to[at] = shared[at];
    }
  }

  // The tiles of a mask over the warp's, eight at a time. `slot`: of the lane's.
  __device__ void EncodeOthers(const Place& place, const ScaleUp& scale_up, uint32_t slot,
                               uint32_t left) const {
    constexpr uint32_t kLanes = kTileLanes<kTile>;
    const uint32_t lane = threadIdx.x % kLanes;
    unsigned nonfinite = 0;
    while (left != 0) {
      const uint32_t local = TakeTile<kLanes>(&left);
      const bool there = local < kWarp;
      const uint32_t tile = there ? local : 0;
      const uint32_t slot_there = __shfl_sync(kAllLanes, slot, static_cast<int>(tile));
      const uint64_t element = (place.tensor_tile + tile) * kTile;
      Lane mine;
      LoadLane(args_.tensor, true, {element, there ? kTile : 0}, InARow(lane), &mine);
      const CodedTile coded =
          CodeTile<kTile, false>(args_, scale_up, slot_there != kNoSlot, element, &mine);
      if (!there) continue;
      if (slot_there != kNoSlot) {
        reinterpret_cast<uint16_t*>(FourthPlane(place.sample, slot_there, 0))[lane] =
            static_cast<uint16_t>(coded.planes[1] >> 16);
      }
      if (!PutTile(place.sample, place.first + tile, coded)) ++nonfinite;
    }
    CountNonfinite(nonfinite);
  }

  const Distances& distances_;
  const uint32_t runs_;
  Shared* const shared_;
  const WarpTiles surveyed_, coded_;
  const bool backwards_;
};

__global__ void __launch_bounds__(kThreads, 3)
    EncodeWholeKernel(const __grid_constant__ TahArgs args,
                      const __grid_constant__ TahScratch scratch,
                      const __grid_constant__ Distances distances) {
  extern __shared__ uint4 shared[];
  WholeEncoder(args, scratch, distances, reinterpret_cast<Shared*>(shared)).Run();
}

// So far behind the survey that its warps seldom wait for the selectors, by whole samples.
Distances MakeDistances(const TahArgs& args) {
  constexpr uint32_t kLead = 8000;
  constexpr uint32_t kSelectors = 16;
  const auto sample_runs = static_cast<uint32_t>(TahScratch::Runs(args.allocs));
  const uint32_t samples = std::min(args.tensor.samples, (kLead + sample_runs - 1) / sample_runs);
  return {samples * sample_runs, 2 * samples * sample_runs, MakeDivisor(sample_runs),
          std::min(kSelectors, 2 * args.tensor.samples)};
}

}  // namespace

int EncodeWholeTiles(const TahArgs& args, cudaStream_t stream) {
  const TahScratch scratch(args.tensor.samples, args.allocs);
  if (const int error = BeginTahEncoder(args, scratch, stream); error != 0) return error;
  if (cudaFuncSetAttribute(EncodeWholeKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           sizeof(Shared)) != cudaSuccess) {
    return Launched();
  }
  const Distances distances = MakeDistances(args);
  const uint64_t turns =
      uint64_t{distances.sample_runs.value} * args.tensor.samples + distances.encode;
  unsigned blocks = 1;
  if (const int error = ResidentBlocks(reinterpret_cast<const void*>(EncodeWholeKernel),
                                       distances.selectors + (turns * kWarp - 1) / kThreads + 1,
                                       &blocks, sizeof(Shared));
      error != 0) {
    return error;
  }
  // Blocks wait for each other.
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, EncodeWholeKernel, args, scratch, distances);
  return Launched();
}

}  // namespace longhaul::codec::cuda
