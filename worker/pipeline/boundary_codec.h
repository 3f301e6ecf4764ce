// Encodes and decodes tensors at one boundary of a stage, in the memory that holds the stage's
// tensors: host memory, or a GPU's (cuda_boundary_codec.h).
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

// Options for tensors of one shape, with a codec for each direction.
struct BoundaryCodecOptions {
  codec::Shape shape;
  std::shared_ptr<const codec::Codec> send, receive;
  uint32_t vocabulary = 0;  // number of token ids, for a codec that predicts by token
};

// Shape of the token tables of the codec that predicts; no rows if no codec predicts.
codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options);
// The token ids inside a decoded blob.
std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob);

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // Makes a buffer for a blob that arrives. kResourceExhausted.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

  // Shape of the token tables; no rows if no codec predicts. A codec that predicts by token keeps
  // its tables here, empty at first. They learn when the context says so. Encode then needs the ids
  // in the context, and Decode returns them with the tensor.
  virtual codec::predict::TablesShape tables_shape() const = 0;
  bool predicts() const { return tables_shape().rows() > 0; }
  // Returns the hash of the receiving codec's tables, if both codecs predict.
  virtual StatusOr<uint64_t> TablesCheck() = 0;
  // Copies the tables. kResourceExhausted.
  virtual StatusOr<codec::predict::Tables> SaveTables() = 0;
  // Restores both codecs' tables. `tables` must have the shape of tables_shape().
  virtual Status RestoreTables(const codec::predict::Tables& tables) = 0;

  // `tensor` must be complete: no kernel still writes it. After the call it is no longer read.
  virtual StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                                       const codec::Context& context) = 0;
  // `blob`: the start of a buffer from NewBlob. Returns a complete fp32 tensor.
  virtual StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                          const codec::Context& context) = 0;

  // Makes a BoundaryCodec for `codec` in both directions that shares this object's memory and
  // stream. Calls of the two must not overlap. It allocates only for blobs larger than this
  // object's, and frees that memory again. kInvalidArgument for a codec that needs more.
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) = 0;

  // Makes a codec in host memory.
  static std::unique_ptr<BoundaryCodec> Create(const BoundaryCodecOptions& options);
};

}  // namespace longhaul::worker
