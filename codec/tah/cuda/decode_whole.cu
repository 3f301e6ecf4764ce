// The decoder of tah for the usual tensors: a thread has a whole tile, which is an allocation tile.
// Tiles that were transformed or are not finite take the way of the general decoder, eight at a
// time.
#include <algorithm>

#include "codec/cuda/module/whole_tiles.cuh"
#include "codec/tah/cuda/decode.cuh"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kTile = kWholeTile;

class WholeDecoder : public TahDecoder<kTile> {
 public:
  __device__ WholeDecoder(const TahArgs& args, uint4* shared)
      : TahDecoder(args), tiles_(shared + threadIdx.x / kWarp * (kWarp * kTileUnits)) {}

  __device__ void Run() {
    ForSamples([&](uint32_t sample, uint32_t first, uint32_t end) {
      // The next group is on its way while one is decoded, and its precision bits before it.
      uint32_t precision = PrecisionOf(sample, first);
      Fetched next = Fetch(sample, first, precision);
      precision = PrecisionOf(sample, first + 1);
      for (uint32_t group = first; group < end; ++group) {
        const Fetched fetched = next;
        if (group + 1 < end) {
          next = Fetch(sample, group + 1, precision);
          precision = PrecisionOf(sample, group + 2);
        }
        DecodeTiles(sample, group, fetched);
      }
    });
  }

 private:
  // Where nothing that is scaled back can leave the normal range.
  static constexpr int kSimpleExponents = 80;

  // What the blob says of this lane's tile of a group.
  struct Fetched {
    uint2 planes[4];
    uint16_t stored, zero;
    uint32_t slot;
  };

  // This lane's word of a group.
  __device__ uint32_t PrecisionOf(uint32_t sample, uint32_t group) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint64_t word = uint64_t{group} * kWordsOfGroup + lane;
    return lane < kWordsOfGroup && word < args_.precision_bytes / 4 ? Precision(sample)[word] : 0;
  }
  // The warp's first tile of a group, and how many it has.
  __device__ uint64_t First(uint32_t group) const {
    return uint64_t{group} * kTahGroup + threadIdx.x / kWarp * kWarp;
  }
  __device__ uint32_t Count(uint32_t group) const {
    const uint64_t first = First(group);
    return first < args_.allocs ? static_cast<uint32_t>(min(args_.allocs - first, uint64_t{kWarp}))
                                : 0;
  }

  // Groups in their order, from the first of ForSamples on.
  __device__ Fetched Fetch(uint32_t sample, uint32_t group, uint32_t precision) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t warp = threadIdx.x / kWarp;
    const auto fours = static_cast<uint32_t>(__popc(precision));
    const uint32_t before = fours_before_ + __reduce_add_sync(kAllLanes, lane < warp ? fours : 0);
    fours_before_ += __reduce_add_sync(kAllLanes, fours);
    const uint32_t mine = __shfl_sync(kAllLanes, precision, static_cast<int>(warp));
    Fetched fetched{};
    fetched.slot =
        possible_ && (mine >> lane & 1) != 0 ? before + __popc(mine & ((1u << lane) - 1)) : kNoSlot;
    if (lane >= Count(group)) return fetched;
    const uint64_t tile = sample * args_.tiles + First(group) + lane;
    const auto* const codes =
        reinterpret_cast<const uint2*>(payload_ + args_.codes + tile * (3 * kTile / 8));
#pragma unroll
    for (int plane = 0; plane < 3; ++plane) fetched.planes[plane] = codes[plane];
    if (fetched.slot != kNoSlot) {
      fetched.planes[3] = *reinterpret_cast<const uint2*>(
          payload_ + args_.fourth_bits + (sample * args_.fours + fetched.slot) * (kTile / 8));
    }
    fetched.stored = reinterpret_cast<const uint16_t*>(payload_ + args_.scales)[tile];
    fetched.zero = reinterpret_cast<const uint16_t*>(payload_ + args_.zeros)[tile];
    return fetched;
  }

  __device__ void DecodeTiles(uint32_t sample, uint32_t group, const Fetched& fetched) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t count = Count(group);
    const bool there = lane < count;
    const uint64_t first_of_tensor = sample * args_.tiles + First(group);
    bool simple = possible_ && exponent_ <= kSimpleExponents && exponent_ >= -kSimpleExponents;
    if (there && simple) {
      simple = fetched.stored < 0x7c00 && (fetched.zero & 0x7c00) != 0x7c00;
      const float back = Pow2(-exponent_);
      const float scale = FromHalf(fetched.stored & 0x7fff) * back;
      const float origin = FromHalf(fetched.zero) * back;
      uint32_t low[4];
      uint32_t high[4];
#pragma unroll
      for (int plane = 0; plane < 4; ++plane) {
        low[plane] = fetched.planes[plane].x;
        high[plane] = fetched.planes[plane].y;
      }
      Expand(low, scale, origin, 0);
      Expand(high, scale, origin, kTileUnits / 2);
    }
    uint32_t others = __ballot_sync(kAllLanes, there && !simple);
    __syncwarp();  // all have written their tiles
    auto* const to = static_cast<uint4*>(args_.tensor.data_dev) + first_of_tensor * kTileUnits;
#pragma unroll
    for (uint32_t k = 0; k < kTileUnits; ++k) {
      const uint32_t unit = k * kWarp + lane;
      const uint32_t of_tile = unit / kTileUnits;
      if (of_tile < count && (others >> of_tile & 1) == 0) {
        to[unit] = *tiles_.At(of_tile, unit % kTileUnits);
      }
    }
    __syncwarp();
    while (others != 0) DecodeOthers(sample, First(group), fetched.slot, &others);
  }

  // Half a tile: four words of bit planes to shared memory, from unit `first` on.
  __device__ void Expand(uint32_t (&words)[4], float scale, float origin, uint32_t first) const {
    TransposeFour(words);
    uint32_t even[4];
    uint32_t odd[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      even[k] = words[k] & 0x0f0f0f0f;
      odd[k] = words[k] >> 4 & 0x0f0f0f0f;
    }
#pragma unroll
    for (uint32_t unit = 0; unit < 4; ++unit) {
      // The code as a float, 2^23 above; exact without. Product and sum are rounded once, as the
      // product is exact.
      const auto value = [&](uint32_t word) {
        const float number = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7540 + unit));
        return __fmaf_rn(number - 8388608.0f, scale, origin);
      };
      *tiles_.At(threadIdx.x % kWarp, first + unit) = make_uint4(
          ToBf16s(value(even[0]), value(even[1])), ToBf16s(value(even[2]), value(even[3])),
          ToBf16s(value(odd[0]), value(odd[1])), ToBf16s(value(odd[2]), value(odd[3])));
    }
  }

  // The first eight of a mask over the warp's tiles, which it takes from it.
  __device__ void DecodeOthers(uint32_t sample, uint64_t first, uint32_t slot, uint32_t* mask) {
    const uint32_t local = TakeTile<kLanes>(mask);
    const bool there = local < kWarp;
    const uint32_t tile = there ? local : 0;
    const uint32_t slot_there = __shfl_sync(kAllLanes, slot, static_cast<int>(tile));
    bool finite = true;
    float values[kPerLane] = {};
    DecodeTile(sample, there, first + tile, slot_there, 0, &finite, values);
    if (!there) return;
    StoreLane(args_.tensor, true, {(sample * args_.tiles + first + tile) * kTile, kTile},
              threadIdx.x % kLanes, finite, exponent_, values);
  }

  const WarpTiles tiles_;
};

__global__ void __launch_bounds__(kThreads, 4)
    DecodeWholeKernel(const __grid_constant__ TahArgs args) {
  __shared__ uint4 tiles[kThreads * kTileUnits];
  WholeDecoder(args, tiles).Run();
}

}  // namespace

int DecodeWholeTiles(const TahArgs& args, cudaStream_t stream) {
  const uint64_t groups = args.tensor.samples * TahScratch::Groups(args.allocs);
  unsigned blocks = 1;
  if (const int error =
          ResidentBlocks(reinterpret_cast<const void*>(DecodeWholeKernel), groups, &blocks);
      error != 0) {
    return error;
  }
  // More than run at once, for processors are not equally quick; but each block reads what
  // precision bits come before its own.
  constexpr uint64_t kRounds = 4;
  constexpr uint64_t kMostBytes = 8 << 10;
  if (args.precision_bytes <= kMostBytes) {
    blocks = static_cast<unsigned>(std::min(kRounds * blocks, groups));
  }
  DecodeWholeKernel<<<blocks, kThreads, 0, stream>>>(args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
