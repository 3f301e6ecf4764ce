#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/sample_pipeline.cuh"
#include "codec/cuda/module/tah_select.cuh"
#include "codec/cuda/module/tah_tile.cuh"

namespace longhaul::codec::cuda {
namespace {

// The phases: entropies and the largest magnitude; the threshold above which allocation tiles get 4
// bits (tah_select.cuh); codes.
template <int kTile, bool kStochastic>
class Encoder {
 public:
  static constexpr int kPhases = 3;

  __device__ Encoder(const TahArgs& args, const TahScratch& scratch, uint32_t lag,
                     const float* logs)
      : args_(args),
        lag_(lag),
        scratch_(scratch),
        logs_(logs),
        payload_(args.blob_dev + kHeaderBytes),
        vectorised_(Vectorised(args.tensor)),
        choose_(args.fours > 0 && args.fours < args.allocs) {}

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
    phase == 0 ? FindBin(Choice(sample)) : Select(Choice(sample));
  }

 private:
  static constexpr int kLanes = kTileLanes<kTile>;
  static constexpr uint32_t kTogether = kThreads / kLanes;

  template <class T>
  __device__ T* Scratch(uint64_t offset) const {
    return reinterpret_cast<T*>(args_.scratch_dev + offset);
  }
  __device__ SampleChoice Choice(uint32_t sample) const {
    const uint64_t groups = TahScratch::Groups(args_.allocs);
    return {args_.allocs,
            args_.fours,
            BinsPerBit(args_.alloc_tiles.value * kTile),
            Scratch<float>(scratch_.entropies) + sample * args_.allocs,
            Scratch<uint32_t>(scratch_.histograms) + uint64_t{sample} * kTahBins,
            Scratch<ThresholdBin>(scratch_.bins) + sample,
            Scratch<uint64_t>(scratch_.candidates) + sample * args_.allocs,
            Scratch<uint32_t>(scratch_.candidate_counts) + sample,
            Scratch<uint32_t>(scratch_.group_counts) + sample * groups,
            Scratch<uint64_t>(scratch_.thresholds) + sample};
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
    sample_largest = __reduce_max_sync(kAllLanes, sample_largest);
    uint32_t* const maximum = Scratch<uint32_t>(scratch_.maxima) + sample;
    // Most are below what was seen already: reading first spares their atomics.
    if (threadIdx.x % kWarp == 0 && sample_largest > __ldcg(maximum)) {
      atomicMax(maximum, sample_largest);
    }
  }

  // Zeros for what a short allocation tile lacks.
  __device__ void LoadOf(uint32_t sample, const Alloc& alloc, uint32_t tile, uint32_t lane,
                         Lane* mine) const {
    const TilePlace place = tile < alloc.tiles ? PlaceOf(sample, alloc, tile) : TilePlace{0, 0};
    LoadLane(args_.tensor, vectorised_, place, OfBothHalves<kTile>(lane), mine);
  }

  __device__ void EncodeGroup(uint32_t sample, uint32_t group) {
    // kNoSlot: 3 bits.
    __shared__ uint32_t slots[kTahGroup];
    FindSlots(sample, group, slots);
    const int exponent =
        SampleExponent(__ldcg(Scratch<uint32_t>(scratch_.maxima) + sample), args_.top_exponent);
    if (group == 0 && threadIdx.x == 0) {
      reinterpret_cast<int16_t*>(payload_)[sample] = static_cast<int16_t>(exponent);
    }
    const ScaleUp scale_up(exponent);
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
      const uint64_t tensor_tile = sample * args_.tiles + sample_tile;
      const CodedTile coded = CodeTile<kTile, kStochastic>(args_, scale_up, slot != kNoSlot,
                                                           tensor_tile * kTile, &mine);
      if (k >= tiles) continue;
      if (slot != kNoSlot) {
        const uint64_t place = (sample * args_.fours + slot) * args_.alloc_tiles.value + tile;
        reinterpret_cast<uint16_t*>(payload_ + args_.fourth_bits + place * (kTile / 8))[lane] =
            there ? static_cast<uint16_t>(coded.planes[1] >> 16) : uint16_t{0};
      }
      if (!there) continue;
      if ((coded.scale & 0x7c00) == 0x7c00) ++nonfinite;
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
    }
    if (nonfinite != 0 && lane == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(args_.blob_dev + kNonfiniteOffset),
                static_cast<unsigned long long>(nonfinite));
    }
  }

  // Step 2 of tah/format.h for a group: its precision bits, and where each fourth plane goes.
  __device__ void FindSlots(uint32_t sample, uint32_t group, uint32_t* slots) {
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

  // Into zeros; neighbours write to the same words.
  __device__ void PutPivot(uint32_t sample, uint64_t tile, uint32_t pivot) {
    const uint64_t bit = tile * args_.pivot_bits;
    auto* const words =
        reinterpret_cast<uint32_t*>(payload_ + args_.pivots + sample * args_.pivot_bytes) +
        bit / 32;
    const uint64_t shifted = uint64_t{pivot} << bit % 32;
    atomicOr(words, static_cast<uint32_t>(shifted));
    if (shifted >> 32 != 0) atomicOr(words + 1, static_cast<uint32_t>(shifted >> 32));
  }

  static constexpr uint32_t kNoSlot = 0xffffffff;

  const TahArgs& args_;
  const uint32_t lag_;
  const TahScratch& scratch_;
  const float* const logs_;
  unsigned char* const payload_;
  const bool vectorised_;
  const bool choose_;
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
  if (const int error = Begin(beginning, stream); error != 0) return error;
  unsigned blocks = 1;
  if (const int error =
          ResidentBlocks(reinterpret_cast<const void*>(EncodeKernel<kTile, kStochastic>),
                         args.tensor.samples * TahScratch::Groups(args.allocs), &blocks);
      error != 0) {
    return error;
  }
  EncodeKernel<kTile, kStochastic><<<blocks, kThreads, 0, stream>>>(
      args, scratch,
      PipelineLag(2 * TahScratch::Groups(args.allocs), blocks, SampleBytes(args.tensor)));
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
  return args->stochastic != 0 ? EncodeAny<true>(*args, handle) : EncodeAny<false>(*args, handle);
}

}  // namespace longhaul::codec::cuda
