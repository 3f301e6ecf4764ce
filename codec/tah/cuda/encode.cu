#include "codec/cuda/module/sample_pipeline.cuh"
#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/tah/cuda/encode.cuh"

namespace longhaul::codec::cuda {
namespace {

// Any shape, dtype and parameters. The phases: entropies and the largest magnitude; the threshold
// above which allocation tiles get 4 bits (select.cuh); codes. An item is a group of allocation
// tiles; of phase 1, kCollected.
template <int kTile, bool kStochastic>
class Encoder : public TahEncoder<kTile> {
 public:
  static constexpr int kPhases = 3;

  // `logs`: the table for values of bf16, else null.
  __device__ Encoder(const TahArgs& args, const TahScratch& scratch, uint32_t lag,
                     const float* logs)
      : Base(args, scratch), lag_(lag), logs_(logs), vectorised_(Vectorised(args.tensor)) {}

  __device__ uint32_t Lag(int phase) const { return phase == 2 ? lag_ : phase * ((lag_ + 1) / 2); }
  __device__ uint32_t Items(int phase) const {
    const uint64_t allocs = phase == 1 ? kCollected : kTahGroup;
    return static_cast<uint32_t>((args_.allocs + allocs - 1) / allocs);
  }
  __device__ void Run(int phase, uint32_t sample, uint32_t item) {
    if (phase == 0) {
      Survey(sample, item);
    } else if (phase == 1) {
      if (choose_) Collect(Choice(sample), item);
    } else {
      EncodeGroup(sample, item);
    }
  }
  __device__ void Finish(int phase, uint32_t sample) {
    if (!choose_) return;
    if (phase == 0) {
      FindBin(Choice(sample), Choice(sample).bin_dev);
    } else {
      __shared__ uint64_t keys[kTahBins / 2];
      const SampleChoice choice = Choice(sample);
      Select(choice, {__ldcg(&choice.bin_dev->bin), __ldcg(&choice.bin_dev->wanted)}, keys);
    }
  }

 private:
  using Base = TahEncoder<kTile>;
  using Base::args_, Base::choose_, Base::kNoSlot, Base::payload_;
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kTogether = kThreads / kLanes;

  __device__ SampleChoice Choice(uint32_t sample) const {
    const uint64_t groups = TahScratch::Groups(args_.allocs);
    SampleChoice choice = this->ChoiceOf(sample);
    choice.group_size = kTahGroup;
    choice.group_counts_dev += sample * groups;
    return choice;
  }

  // An allocation tile of a sample: its first tile within its token, and its tiles.
  struct Alloc {
    uint32_t token, first, tiles;
  };
  __device__ Alloc Locate(uint32_t alloc) const {
    const uint32_t token = alloc / args_.token_allocs;
    const uint32_t first = (alloc - token * args_.token_allocs.value) * args_.alloc_tiles.value;
    return {token, first, min(args_.alloc_tiles.value, args_.token_tiles - first)};
  }
  __device__ TilePlace PlaceOf(uint32_t sample, const Alloc& alloc, uint32_t tile) const {
    return Place(args_.tensor, sample * args_.tensor.tokens + alloc.token, alloc.first + tile,
                 kTile);
  }

  __device__ void Survey(uint32_t sample, uint32_t item) {
    const uint32_t lane = threadIdx.x % kLanes;
    const uint64_t first = uint64_t{item} * kTahGroup;
    uint32_t sample_largest = 0;
    for (uint32_t k = threadIdx.x / kLanes; k < kTahGroup; k += kTogether) {
      const bool there = first + k < args_.allocs;
      const auto index = static_cast<uint32_t>(there ? first + k : first);
      Alloc alloc = Locate(index);
      Lane mine;
      uint32_t largest = 0;
      for (uint32_t tile = 0; tile < args_.alloc_tiles.value; ++tile) {
        LoadOf(sample, alloc, tile, lane, &mine);
        const uint32_t of_tile = TileMax<kLanes>(mine.magnitude);
        largest = max(largest, of_tile);
        if (of_tile < kF32Infinity) sample_largest = max(sample_largest, of_tile);
      }
      if (!choose_) continue;
      const bool numbers = largest > 0 && largest < kF32Infinity;
      const ScaleUp scale(numbers ? 1 - FloorLog2(largest) : 0);
      tah::cpu::EntropySums sums;
      for (uint32_t tile = 0; tile < args_.alloc_tiles.value; ++tile) {
        if (args_.alloc_tiles.value > 1) LoadOf(sample, alloc, tile, lane, &mine);
        const tah::cpu::EntropySums of_tile = TileSums<kTile>(mine.values, scale, logs_);
        if (tile < alloc.tiles) {
          sums.n = sums.n + of_tile.n;
          sums.l = sums.l + of_tile.l;
        }
      }
      float entropy = numbers ? tah::cpu::Entropy(sums) : 0.0f;
      if (largest >= kF32Infinity) entropy = __uint_as_float(0xff800000);
      if (there && lane == 0) Record(Choice(sample), index, entropy);
    }
    this->RecordLargest(sample, sample_largest);
  }

  // Zeros for what a short allocation tile lacks.
  __device__ void LoadOf(uint32_t sample, const Alloc& alloc, uint32_t tile, uint32_t lane,
                         Lane* mine) const {
    const TilePlace place = tile < alloc.tiles ? PlaceOf(sample, alloc, tile) : TilePlace{0, 0};
    LoadLane(args_.tensor, vectorised_, place, OfBothHalves<kTile>(lane), mine);
  }

  __device__ void EncodeGroup(uint32_t sample, uint32_t group) {
    __shared__ uint32_t slots[kTahGroup];
    FindSlots(sample, group, slots);
    const ScaleUp scale_up(this->TakeExponent(sample, group));
    const uint32_t lane = threadIdx.x % kLanes;
    const uint64_t first = uint64_t{group} * kTahGroup;
    const auto allocs = static_cast<uint32_t>(min(args_.allocs - first, uint64_t{kTahGroup}));
    const uint32_t tiles = allocs * args_.alloc_tiles.value;
    unsigned nonfinite = 0;
    // Whole warps.
    for (uint32_t k = threadIdx.x / kLanes; k < (tiles + kTogether - 1) / kTogether * kTogether;
         k += kTogether) {
      const uint32_t local = min(k / args_.alloc_tiles, allocs - 1);
      const uint32_t tile = k - local * args_.alloc_tiles.value;
      const Alloc alloc = Locate(static_cast<uint32_t>(first) + local);
      const bool there = k < tiles && tile < alloc.tiles;
      Lane mine;
      LoadLane(args_.tensor, vectorised_, there ? PlaceOf(sample, alloc, tile) : TilePlace{0, 0},
               InARow(lane), &mine);
      const uint32_t slot = slots[local];
      const uint64_t sample_tile = uint64_t{alloc.token} * args_.token_tiles + alloc.first + tile;
      const CodedTile coded = CodeTile<kTile, kStochastic>(
          args_, scale_up, slot != kNoSlot, (sample * args_.tiles + sample_tile) * kTile, &mine);
      if (k >= tiles) continue;
      if (slot != kNoSlot) {
        reinterpret_cast<uint16_t*>(this->FourthPlane(sample, slot, tile))[lane] =
            there ? static_cast<uint16_t>(coded.planes[1] >> 16) : uint16_t{0};
      }
      if (there && !this->PutTile(sample, sample_tile, coded)) ++nonfinite;
    }
    this->CountNonfinite(nonfinite);
  }

  // Step 2 of tah/format.h for a group: its precision bits, and where each fourth plane goes.
  __device__ void FindSlots(uint32_t sample, uint32_t group, uint32_t* slots) const {
    static_assert(kThreads == kTahGroup);
    const uint64_t first = uint64_t{group} * kTahGroup;
    const uint64_t alloc = first + threadIdx.x;
    const SampleChoice choice = Choice(sample);
    bool four = args_.fours > 0;
    uint32_t before = static_cast<uint32_t>(first);
    if (choose_) {
      four = alloc < args_.allocs &&
             CandidateKey(__ldcg(choice.entropies_dev + min(alloc, args_.allocs - 1)),
                          static_cast<uint32_t>(alloc)) <= __ldcg(choice.threshold_dev);
      before = __ldcg(choice.group_counts_dev + group);
    }
    four = four && alloc < args_.allocs;
    __shared__ uint32_t warp_words[kThreads / kWarp];
    const unsigned warp = threadIdx.x / kWarp;
    const uint32_t word = __ballot_sync(kAllLanes, four);
    if (threadIdx.x % kWarp == 0) {
      warp_words[warp] = word;
      if ((first + threadIdx.x) / 8 < args_.precision_bytes) {
        *reinterpret_cast<uint32_t*>(payload_ + args_.precision + sample * args_.precision_bytes +
                                     (first + threadIdx.x) / 8) = word;
      }
    }
    __syncthreads();
    for (unsigned k = 0; k < warp; ++k) before += __popc(warp_words[k]);
    before += __popc(word & ((1u << threadIdx.x % kWarp) - 1));
    slots[threadIdx.x] = four ? before : kNoSlot;
    __syncthreads();
  }

  const uint32_t lag_;
  const float* const logs_;
  const bool vectorised_;
};

template <int kTile, bool kStochastic>
__global__ void __launch_bounds__(kThreads, kStochastic ? 2 : 4)
    EncodeKernel(const __grid_constant__ TahArgs args, const __grid_constant__ TahScratch scratch,
                 uint32_t lag) {
  __shared__ float logs[kLogTable];
  FillLogTable(logs);
  __syncthreads();
  Encoder<kTile, kStochastic> encoder(args, scratch, lag,
                                      args.tensor.dtype == kBf16 ? logs : nullptr);
  RunPipeline(encoder, args.tensor.samples,
              {reinterpret_cast<unsigned long long*>(args.scratch_dev),
               reinterpret_cast<uint32_t*>(args.scratch_dev + scratch.done)});
}

template <int kTile, bool kStochastic>
int Encode(const TahArgs& args, cudaStream_t stream) {
  const TahScratch scratch(args.tensor.samples, args.allocs);
  if (const int error = Begin(TahBeginning(args, scratch), stream); error != 0) return error;
  const uint64_t groups = TahScratch::Groups(args.allocs);
  const auto kernel = EncodeKernel<kTile, kStochastic>;
  unsigned blocks = 1;
  if (const int error = ResidentBlocks(reinterpret_cast<const void*>(kernel),
                                       args.tensor.samples * groups, &blocks);
      error != 0) {
    return error;
  }
  kernel<<<blocks, kThreads, 0, stream>>>(
      args, scratch, PipelineLag(2 * groups, blocks, SampleBytes(args.tensor)));
  return Launched();
}

template <bool kStochastic>
int EncodeAny(const TahArgs& args, cudaStream_t stream) {
  if (args.tile == 32) return Encode<32, kStochastic>(args, stream);
  return args.tile == 64 ? Encode<64, kStochastic>(args, stream)
                         : Encode<128, kStochastic>(args, stream);
}

}  // namespace

int EncodeTah(int device, const TahArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto handle = static_cast<cudaStream_t>(stream);
  if (args->stochastic != 0) return EncodeAny<true>(*args, handle);
  if (HasWholeTiles(args->tensor, args->tile) && args->alloc_tiles.value == 1) {
    return EncodeWholeTiles(*args, handle);
  }
  return EncodeAny<false>(*args, handle);
}

int DecodeTah(int device, const TahArgs* args, void* stream);  // decode.cu
const TahKernels kTahKernels = {EncodeTah, DecodeTah};

}  // namespace longhaul::codec::cuda
