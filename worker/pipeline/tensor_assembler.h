// Assembles the tensors that arrive over one edge from their chunks. Trusts no header: refuses any
// chunk except the expected next one, which ends the stage.
//
// Threads: one at a time, the link's loop. Errors: kInvalidArgument for a refused chunk;
// kResourceExhausted.
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

// Bytes of a blob in one frame. The last chunk may be smaller.
inline constexpr size_t kChunkBytes = transport::kMaxFramePayloadBytes - wire::kTensorHeaderBytes;

inline Slice SliceOf(const wire::TensorHeader& header) {
  return {header.microbatch, header.slice};
}

inline Pass PassOf(const wire::TensorHeader& header) {
  if (header.clean) return {header.step, PassKind::kCleanValidation};
  return {header.step, header.validation ? PassKind::kValidation : PassKind::kTraining};
}

struct TensorAssemblerOptions {
  Direction direction = Direction::kForward;  // of the arriving tensors
  uint32_t replica = 0;
  uint32_t microbatches = 1, validation_microbatches = 0;
  uint32_t slices = 1;  // sequence chunks of each microbatch
  codec::Shape shape;
  // Return the codec of a pass, and the BoundaryCodec that will decode its tensors.
  std::function<const codec::Codec&(const Pass&)> codec;
  std::function<BoundaryCodec&(const Pass&)> runner;
};

// A tensor of which all chunks have arrived.
struct EncodedTensor {
  Pass pass;
  Slice slice;
  BlobBuffer blob;
  size_t blob_bytes = 0;
  uint32_t chunks = 1;
  MonoTime began;  // arrival of its first chunk
};

class TensorAssembler {
 public:
  explicit TensorAssembler(TensorAssemblerOptions options) : options_(std::move(options)) {}

  // Copies `body` of a kChunk frame. Returns the tensor if this was its last chunk, else null.
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
