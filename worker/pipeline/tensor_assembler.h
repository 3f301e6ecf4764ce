// Assembles the tensors that arrive over one edge from their chunks. It accepts only the chunk that
// must come next, whatever a header says. Any other chunk is an error, which ends the stage.
//
// Threads: the link's loop. Errors: kInvalidArgument for a chunk that must not come now, and those
// of BoundaryCodec::NewBlob.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/codec.h"
#include "proto/wire/tensor_header.h"
#include "transport/p2p/link.h"
#include "worker/pipeline/boundary_codec.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

// Number of bytes in a chunk, the part of a blob that one frame carries. The last chunk of a blob
// may be smaller.
inline constexpr size_t kChunkBytes = transport::kMaxFramePayloadBytes - wire::kTensorHeaderBytes;

// The slice and the pass that the tensor of a chunk belongs to.
inline Slice SliceOf(const wire::TensorHeader& header) {
  return {header.microbatch, header.slice};
}

inline Pass PassOf(const wire::TensorHeader& header) {
  if (header.sampling) return {header.step, PassKind::kSampling, header.number};
  if (header.clean) return {header.step, PassKind::kCleanValidation};
  return {header.step, header.validation ? PassKind::kValidation : PassKind::kTraining};
}

struct TensorAssemblerOptions {
  Direction direction = Direction::kForward;  // of the arriving tensors
  uint32_t replica = 0;                       // the replica that headers must name
  // Number of microbatches in a pass of training and of validation, and the most of a sampling
  // pass; 0: there are no such passes.
  uint32_t microbatches = 1, validation_microbatches = 0, sampling_microbatches = 0;
  uint32_t slices = 1;  // sequence chunks of each microbatch
  codec::Shape shape;   // of every tensor
  // Return the codec of a pass's tensors, and the BoundaryCodec that will decode the tensors. The
  // results must stay valid as long as the assembler.
  std::function<const codec::Codec&(const Pass&)> codec;
  std::function<BoundaryCodec&(const Pass&)> runner;
  // Returns the bytes behind each blob of a pass (run/boundary/carried_tokens.h).
  std::function<size_t(const Pass&)> carried = [](const Pass&) { return size_t{0}; };
};

// An encoded tensor that has arrived in full, with the carried bytes behind its blob.
struct EncodedTensor {
  Pass pass;
  Slice slice;
  BlobBuffer blob;
  size_t blob_bytes = 0;  // with the carried ones
  uint32_t chunks = 1;
  MonoTime began;  // when its first chunk arrived
};

class TensorAssembler {
 public:
  explicit TensorAssembler(TensorAssemblerOptions options) : options_(std::move(options)) {}

  // Copies `body`, the chunk in a frame of kind kChunk. Returns the whole tensor after its last
  // chunk, else null.
  StatusOr<std::shared_ptr<const EncodedTensor>> Take(const wire::TensorHeader& header,
                                                      std::span<const std::byte> body);

 private:
  Status Check(const wire::TensorHeader& header, size_t body_bytes) const;
  Status Begin(const wire::TensorHeader& header);
  uint32_t PlaceOf(const Slice& slice) const {
    return SliceOrder(options_.slices).PlaceOf(slice, options_.direction);
  }

  const TensorAssemblerOptions options_;
  std::shared_ptr<EncodedTensor> partial_;  // null: the next chunk begins a tensor
  size_t received_bytes_ = 0;               // bytes received of partial_
  uint32_t next_chunk_ = 0;
  Pass last_pass_;  // of the last tensor
  std::optional<Slice> last_slice_;
};

}  // namespace longhaul::worker
