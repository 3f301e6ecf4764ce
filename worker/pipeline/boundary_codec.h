// Encodes and decodes tensors at one boundary of a stage, in the memory that holds the stage's
// tensors: the host's, or a GPU's (cuda_boundary_codec.h).
//
// Threads: one at a time, except NewBlob and tables_shape, which any thread may call. Results may
// outlive the codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/predict/tables.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Host memory for one blob, aligned to 64 bytes.
struct BlobBuffer {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;  // keeps `bytes` alive
};

struct EncodedBlob {
  BlobBuffer buffer;
  size_t bytes = 0;  // the blob's length, from the start of the buffer
  uint64_t nonfinite_tiles = 0;
};

// For tensors of one shape, and a codec for each direction.
struct BoundaryCodecOptions {
  codec::Shape shape;
  std::shared_ptr<const codec::Codec> send, receive;
  uint32_t vocabulary = 0;  // number of token ids, for a codec that predicts by token
};

// Shape of the token tables of the codec that predicts; without rows if none does.
codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options);
// The token ids inside a decoded blob.
std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob);

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // Makes a buffer for a blob that arrives. kResourceExhausted.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

  // A codec that predicts by token keeps its tables here, empty at first. They learn when the
  // context says so. Encode then needs the ids in the context, and Decode gives them with the
  // tensor. This is the tables' shape, without rows if no codec predicts.
  virtual codec::predict::TablesShape tables_shape() const = 0;
  bool predicts() const { return tables_shape().rows() > 0; }
  // Hash of the received codec's tables, if both codecs predict.
  virtual StatusOr<uint64_t> TablesCheck() = 0;
  // Copies the tables. kResourceExhausted.
  virtual StatusOr<codec::predict::Tables> SaveTables() = 0;
  // Restores both codecs' tables. `tables` must have this shape.
  virtual Status RestoreTables(const codec::predict::Tables& tables) = 0;

  // `tensor` must be complete: no kernel still writes it. When this returns, it is no longer read.
  virtual StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                                       const codec::Context& context) = 0;
  // `blob`: the start of a buffer from NewBlob. Gives a complete fp32 tensor.
  virtual StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                          const codec::Context& context) = 0;

  // Makes a BoundaryCodec for `codec` in both directions that shares this one's memory and stream.
  // Calls of the two must not overlap. It only allocates, temporarily, for blobs larger than this
  // one's. kInvalidArgument for a codec that needs more.
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) = 0;

  // In host memory.
  static std::unique_ptr<BoundaryCodec> Create(const BoundaryCodecOptions& options);
};

}  // namespace longhaul::worker
