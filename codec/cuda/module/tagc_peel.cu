// codec/tagc/sketch.h: filling a sketch and taking it apart. Sums are modulo 2^32, so atomic
// additions give the CPU's bytes in any order. Peeling goes in rounds: a kernel reads the cells
// that have one position and takes each position once, the next one takes the numbers out of all
// cells. What is read and what is written lie in different kernels.
#include "codec/cuda/module/device_tile.cuh"
#include "codec/cuda/module/kernels.cuh"
#include "codec/cuda/module/tagc_scan.cuh"
#include "codec/tagc/sketch.h"

namespace longhaul::codec::cuda {
namespace {

using tagc::BlockPlace;
using tagc::CellOf;
using tagc::kBlock;
using tagc::kTables;
using tagc::PlaceOf;
using tagc::Sketch;

constexpr unsigned kMostBlocks = 2048;
unsigned BlocksFor(uint64_t work) {
  const uint64_t blocks = (work + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

__global__ void __launch_bounds__(kThreads)
    TagcAddKernel(const __grid_constant__ TagcSketchArgs args) {
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  const double factor = ldexp(1.0, args.exponent);
  const double back = ldexp(1.0, -args.exponent);
  for (uint64_t word = uint64_t{blockIdx.x} * kThreads + threadIdx.x; word < args.words;
       word += stride) {
    uint64_t rest = args.bitmap_dev[word];
    if (rest == 0) continue;
    const BlockPlace place = PlaceOf(Sketch{args.rows, args.seed}, args.first_block + word);
    for (; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<uint32_t>(__ffsll(static_cast<long long>(rest)) - 1);
      float& value = args.values_dev[word * kBlock + lane];
      const auto fixed = static_cast<int32_t>(__double2ll_rn(__dmul_rn(value, factor)));
      value = static_cast<float>(__dsub_rn(value, __dmul_rn(fixed, back)));
      for (uint32_t table = 0; table < kTables; ++table) {
        atomicAdd(&args.cells_dev[CellOf(place, table, lane)], static_cast<uint32_t>(fixed));
      }
    }
  }
}

// What the rounds share.
struct TagcLists {
  uint32_t sizes[2];  // of the lists of cells
  uint32_t chosen;
  uint32_t peeled;
};
static_assert(sizeof(TagcLists) == 16);

struct TagcPeeling {
  __host__ __device__ explicit TagcPeeling(const TagcPeelArgs& args)
      : sketch{args.rows, args.seed}, cells(sketch.cells()) {
    const TagcPeelScratch scratch(cells, args.words);
    unsigned char* const from = args.scratch_dev;
    lists = reinterpret_cast<TagcLists*>(from);
    counts = reinterpret_cast<uint32_t*>(from + scratch.counts);
    members = reinterpret_cast<uint32_t*>(from + scratch.members);
    peeled = reinterpret_cast<uint32_t*>(from + scratch.peeled);
    before = reinterpret_cast<uint32_t*>(from + scratch.before);
    list[0] = reinterpret_cast<uint32_t*>(from + scratch.lists);
    list[1] = list[0] + cells;
    chosen = reinterpret_cast<uint2*>(from + scratch.chosen);
  }
  Sketch sketch;
  uint64_t cells;
  TagcLists* lists;
  uint32_t *counts, *members, *peeled, *before, *list[2];
  uint2* chosen;  // position and number
};

__global__ void __launch_bounds__(kThreads)
    TagcOccupyKernel(const __grid_constant__ TagcPeelArgs args) {
  const TagcPeeling peeling(args);
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t word = uint64_t{blockIdx.x} * kThreads + threadIdx.x; word < args.words;
       word += stride) {
    uint64_t rest = args.bitmap_dev[word];
    peeling.before[word] = __popcll(rest);
    if (rest == 0) continue;
    const BlockPlace place = PlaceOf(peeling.sketch, word);
    for (; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<uint32_t>(__ffsll(static_cast<long long>(rest)) - 1);
      for (uint32_t table = 0; table < kTables; ++table) {
        const uint64_t cell = CellOf(place, table, lane);
        atomicAdd(&peeling.counts[cell], 1u);
        atomicXor(&peeling.members[cell], static_cast<uint32_t>(word * kBlock + lane));
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    TagcFirstListKernel(const __grid_constant__ TagcPeelArgs args) {
  const TagcPeeling peeling(args);
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t cell = uint64_t{blockIdx.x} * kThreads + threadIdx.x; cell < peeling.cells;
       cell += stride) {
    if (peeling.counts[cell] != 1) continue;
    peeling.list[0][atomicAdd(&peeling.lists->sizes[0], 1u)] = static_cast<uint32_t>(cell);
  }
}

// Positions that a cell of the list has alone, each once, with their numbers.
__global__ void __launch_bounds__(kThreads)
    TagcTakeKernel(const __grid_constant__ TagcPeelArgs args, uint32_t parity) {
  const TagcPeeling peeling(args);
  const uint32_t size = peeling.lists->sizes[parity];
  for (uint32_t k = blockIdx.x * kThreads + threadIdx.x; k < size; k += gridDim.x * kThreads) {
    const uint32_t cell = peeling.list[parity][k];
    if (peeling.counts[cell] != 1) continue;  // its position has been taken from another cell
    const uint32_t position = peeling.members[cell];
    const uint32_t bit = 1u << position % 32;
    if ((atomicOr(&peeling.peeled[position / 32], bit) & bit) != 0) continue;
    const uint32_t number = args.cells_dev[cell];
    peeling.chosen[atomicAdd(&peeling.lists->chosen, 1u)] = {position, number};
    const uint64_t word = args.bitmap_dev[position / kBlock];
    const uint64_t below = word & ((uint64_t{1} << position % kBlock) - 1);
    args.numbers_dev[peeling.before[position / kBlock] + __popcll(below)] = number;
  }
}

// Takes the chosen ones out of their cells. Cells that have one position left are the next list.
__global__ void __launch_bounds__(kThreads)
    TagcSubtractKernel(const __grid_constant__ TagcPeelArgs args, uint32_t parity) {
  const TagcPeeling peeling(args);
  const uint32_t size = peeling.lists->chosen;
  for (uint32_t k = blockIdx.x * kThreads + threadIdx.x; k < size; k += gridDim.x * kThreads) {
    const auto [position, number] = peeling.chosen[k];
    const BlockPlace place = PlaceOf(peeling.sketch, position / kBlock);
    for (uint32_t table = 0; table < kTables; ++table) {
      const uint64_t cell = CellOf(place, table, position);
      atomicSub(&args.cells_dev[cell], number);
      atomicXor(&peeling.members[cell], position);
      if (atomicSub(&peeling.counts[cell], 1u) == 2) {
        peeling.list[1 - parity][atomicAdd(&peeling.lists->sizes[1 - parity], 1u)] =
            static_cast<uint32_t>(cell);
      }
    }
  }
}

// Between two rounds.
__global__ void TagcTurnKernel(const __grid_constant__ TagcPeelArgs args, uint32_t parity) {
  TagcLists* const lists = TagcPeeling(args).lists;
  lists->sizes[parity] = 0;
  lists->peeled += lists->chosen;
  lists->chosen = 0;
}

__global__ void __launch_bounds__(kThreads)
    TagcCheckKernel(const __grid_constant__ TagcPeelArgs args) {
  const TagcPeeling peeling(args);
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t cell = uint64_t{blockIdx.x} * kThreads + threadIdx.x; cell < peeling.cells;
       cell += stride) {
    if (peeling.counts[cell] != 0 || args.cells_dev[cell] != 0) atomicOr(args.fault_dev, 1u);
  }
}

}  // namespace

int AddTagc(int device, const TagcSketchArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  TagcAddKernel<<<BlocksFor(args->words), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  return Launched();
}

int PeelTagc(int device, const TagcPeelArgs* args, void* stream) {
  if (cudaSetDevice(device) != cudaSuccess) return Launched();
  const auto queue = static_cast<cudaStream_t>(stream);
  const TagcPeeling peeling(*args);
  const TagcPeelScratch scratch(peeling.cells, args->words);
  cudaMemsetAsync(args->scratch_dev, 0, scratch.zeroed, queue);
  TagcOccupyKernel<<<BlocksFor(args->words), kThreads, 0, queue>>>(*args);
  ScanKernel<<<1, kScanThreads, 0, queue>>>(peeling.before, args->words);
  const unsigned blocks = BlocksFor(peeling.cells);
  TagcFirstListKernel<<<blocks, kThreads, 0, queue>>>(*args);
  // Lists get short soon; few blocks are quick to end.
  constexpr unsigned kBlocksOfRound = 128;
  const unsigned of_round = blocks < kBlocksOfRound ? blocks : kBlocksOfRound;
  for (uint32_t round = 0; round < kTagcRounds; ++round) {
    TagcTakeKernel<<<of_round, kThreads, 0, queue>>>(*args, round % 2);
    TagcSubtractKernel<<<of_round, kThreads, 0, queue>>>(*args, round % 2);
    TagcTurnKernel<<<1, 1, 0, queue>>>(*args, round % 2);
  }
  TagcCheckKernel<<<blocks, kThreads, 0, queue>>>(*args);
  return Launched();
}

}  // namespace longhaul::codec::cuda
