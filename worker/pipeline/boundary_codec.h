// Encodes and decodes tensors at one boundary of a stage. Tensors are in the memory where the stage
// computes: the host's, or a GPU's (cuda_boundary_codec.h). Encoded tensors ("blobs") are in host
// memory.
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

// Options of a BoundaryCodec. All its tensors have one shape.
struct BoundaryCodecOptions {
  codec::Shape shape;
  std::shared_ptr<const codec::Codec> send, receive;  // encodes with `send`, decodes with `receive`
  uint32_t vocabulary = 0;  // number of token ids, for a codec that predicts by token
};

// Returns the shape of the token tables of the codec that predicts by token; no rows if none does.
codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options);
// Returns the token ids in a blob of a codec that predicts by token. Decode must have accepted the
// blob before.
std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob);

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // Makes a buffer for a blob that will arrive. kResourceExhausted: no memory.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

  // Shape of the token tables; no rows if no codec predicts by token. This object holds the tables,
  // which are empty at first and learn when the context says so. If the codec predicts, Encode
  // needs the token ids in the context, and Decode returns them with the tensor.
  virtual codec::predict::TablesShape tables_shape() const = 0;
  // True if a codec predicts by token. If false, do not call the next three methods.
  bool predicts() const { return tables_shape().rows() > 0; }
  // Returns the hash of the receiving codec's tables, or of the sending codec's if only that one
  // predicts.
  virtual StatusOr<uint64_t> TablesCheck() = 0;
  // Returns a copy of the same tables. kResourceExhausted: no memory.
  virtual StatusOr<codec::predict::Tables> SaveTables() = 0;
  // Sets the tables of both codecs to `tables`, which must have the shape tables_shape().
  virtual Status RestoreTables(const codec::predict::Tables& tables) = 0;

  // Encodes `tensor`. No kernel may still write it. It is not read after the call.
  virtual StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                                       const codec::Context& context) = 0;
  // Decodes `blob`, which must be at the start of a buffer from NewBlob, into a complete fp32
  // tensor. kInvalidArgument: not a blob that the codec writes.
  virtual StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                          const codec::Context& context) = 0;

  // Makes a BoundaryCodec that uses `codec` in both directions and shares this object's working
  // memory and stream. Calls of the two objects must not overlap. `codec` must have no state.
  // kInvalidArgument: `codec` needs more working memory than this object has.
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) = 0;

  // Makes a BoundaryCodec for tensors in host memory.
  static std::unique_ptr<BoundaryCodec> Create(const BoundaryCodecOptions& options);
};

}  // namespace longhaul::worker
