// codec/tagc on a GPU, with the CPU's bits and numbers: every pointer is to memory of the stream's
// device. The plan of a sketch is made on the CPU, of a bitmap that is there anyway to be sent.
//
// Calls only queue work: they allocate nothing, never wait, and may be captured in a CUDA graph.
// Threads: pure functions. Errors, before anything is queued: kInvalidArgument for null or
// misaligned memory and sizes that cannot be, kInternal for a refusal of the CUDA runtime.
#ifndef LONGHAUL_CODEC_CUDA_CUDA_TAGC_H_
#define LONGHAUL_CODEC_CUDA_CUDA_TAGC_H_

#include <cstddef>
#include <cstdint>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/tagc/sketch.h"

namespace longhaul::codec::cuda {

size_t TagcSelectScratchBytes(uint64_t count);
// select.h's Select. `scratch` is aligned to 16 bytes. At most 2^31 values.
Status TagcSelect(const float* values_dev, uint64_t count, uint64_t keep, uint64_t* bitmap_dev,
                  DeviceSpan scratch, const longhaul::cuda::Stream& stream);

// The kept values of one piece, as fixed-point numbers x 2^exponent, into the shard's cells, which
// begin as zeros. `first_block` is the piece's first position / kBlock. What fixed point loses of a
// value stays in its place.
Status TagcAdd(const tagc::Sketch& sketch, int32_t exponent, const uint64_t* bitmap_dev,
               uint64_t words, uint64_t first_block, float* values_dev, uint32_t* cells_dev,
               const longhaul::cuda::Stream& stream);

size_t TagcPeelScratchBytes(const tagc::Sketch& sketch, uint64_t words);
// sketch.h's Peel, but for its answer: *fault_dev is or-ed with 1 where that would be false, and
// where peeling takes more rounds than are queued (kTagcRounds).
Status TagcPeel(const tagc::Sketch& sketch, const uint64_t* bitmap_dev, uint64_t words,
                uint32_t* cells_dev, uint32_t* numbers_dev, DeviceSpan scratch, uint32_t* fault_dev,
                const longhaul::cuda::Stream& stream);

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_CUDA_TAGC_H_
