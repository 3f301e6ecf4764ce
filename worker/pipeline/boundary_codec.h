// Encodes and decodes tensors at one boundary of a stage. Tensors are in the memory where the stage
// computes: the host's, or a GPU's (cuda_boundary_codec.h). Encoded tensors ("blobs") are in host
// memory.
//
// Threads: one at a time, except NewBlob and tables_shape, which any thread may call at any time.
// Buffers, blobs and tensors may outlive the object that made them; any thread may release them.
// Errors of all methods: also those of the codec, and on a GPU those of the CUDA runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  size_t bytes = 0;              // the blob's length, from the start of the buffer
  uint64_t nonfinite_tiles = 0;  // number of tiles with an infinite or NaN value (codec/blob.h)
};

// Options of a BoundaryCodec.
struct BoundaryCodecOptions {
  // The shape of every tensor that is sent. Received tensors have the same shape if `received` is
  // unset.
  codec::Shape shape;
  std::optional<codec::Shape> received = std::nullopt;
  codec::Shape received_shape() const { return received.value_or(shape); }
  // Encodes with `send`, decodes with `receive`. Not null; may be the same codec.
  std::shared_ptr<const codec::Codec> send, receive;
  uint32_t vocabulary = 0;  // number of token ids; read only if a codec predicts by token
  size_t room_bytes = 0;    // bytes that a buffer has for the caller behind the largest blob
};

// Returns the shape of the token tables (codec/predict/tables.h) that the codecs of `options` need.
// The shape has 0 rows if neither codec predicts by token.
codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options);
// Returns the token ids in a blob of a codec that predicts by token; never null. Decode must have
// accepted the blob before.
std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob);

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // Makes a buffer for a blob that will arrive. A buffer in host memory has no errors. On a GPU,
  // kResourceExhausted: there is no pinned memory; kInvalidArgument: `bytes` is more than the
  // largest blob of these codecs and room_bytes together.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

  // Shape of the token tables; 0 rows: no codec predicts by token. This object holds the tables.
  // The tables are empty at first, and learn from tensors whose Context::learns is true. If a codec
  // predicts, Encode needs Context::token_ids, and Decode returns the ids with the tensor.
  virtual codec::predict::TablesShape tables_shape() const = 0;
  // True if a codec predicts by token. If false, do not call the next three methods.
  bool predicts() const { return tables_shape().rows() > 0; }
  // Returns the hash of the receiving codec's tables, or of the sending codec's if only that one
  // predicts.
  virtual StatusOr<uint64_t> TablesCheck() = 0;
  // Returns a copy of the tables that TablesCheck hashes. kResourceExhausted: no memory.
  virtual StatusOr<codec::predict::Tables> SaveTables() = 0;
  // Sets the tables of both codecs to `tables`, which must have the shape tables_shape().
  virtual Status RestoreTables(const codec::predict::Tables& tables) = 0;

  // Encodes `tensor`. No kernel may still write `tensor`. Neither argument is used after the call.
  // The buffer has room_bytes more than the largest blob.
  virtual StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                                       const codec::Context& context) = 0;
  // Decodes `blob`, which must be at the start of a buffer from NewBlob, into a complete fp32
  // tensor. kInvalidArgument: the codec does not write such a blob, or the two sides' token tables
  // differ.
  virtual StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                          const codec::Context& context) = 0;

  // Copies rows of a decoded tensor (a row has the channels of one token) to host memory, one after
  // the other. `rows`: ascending, below the tensor's samples x tokens.
  virtual StatusOr<std::vector<float>> CopyRows(const codec::TensorView& tensor,
                                                std::span<const size_t> rows);

  // Makes a BoundaryCodec that uses `codec` in both directions and shares this object's working
  // memory and stream. Calls of the two objects must not overlap. `codec` must have no state.
  // kInvalidArgument: `codec` needs more working memory than this object has. The two objects may
  // be destroyed in any order.
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) = 0;

  // Makes a BoundaryCodec for tensors in host memory. Cannot fail.
  static std::unique_ptr<BoundaryCodec> Create(const BoundaryCodecOptions& options);
};

}  // namespace longhaul::worker
