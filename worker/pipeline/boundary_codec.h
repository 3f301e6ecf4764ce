// How tensors become bytes at one boundary of a stage and bytes become tensors, where the stage's
// tensors are: in the host's memory, or in a GPU's (cuda_boundary_codec.h).
//
// Threads: all one at a time but NewBlob and tables_shape, on any. What they give may outlive the
// codec.
#ifndef LONGHAUL_WORKER_PIPELINE_BOUNDARY_CODEC_H_
#define LONGHAUL_WORKER_PIPELINE_BOUNDARY_CODEC_H_

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
  std::shared_ptr<void> owner;  // keeps `bytes`
};

struct EncodedBlob {
  BlobBuffer buffer;
  size_t bytes = 0;  // at its start
  uint64_t nonfinite_tiles = 0;
};

// Of one shape and two codecs: that of what is sent and that of what comes.
struct BoundaryCodecOptions {
  codec::Shape shape;
  std::shared_ptr<const codec::Codec> send, receive;
  uint32_t vocabulary = 0;  // of the ids by which a codec predicts
};

// Of the codec that predicts by tokens; without rows where none does.
codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options);
// The ids of a blob that was decoded.
std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob);

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // For what is to be decoded. kResourceExhausted.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

  // A codec that predicts by tokens has its tables here, which have learned nothing at first. They
  // learn where the context says so. Encode needs the context's ids; what Decode gives has them.
  // Their shape; without rows where no codec predicts.
  virtual codec::predict::TablesShape tables_shape() const = 0;
  bool predicts() const { return tables_shape().rows() > 0; }
  // Of the codec that is received, where both predict: the hash of what it has learned.
  virtual StatusOr<uint64_t> TablesCheck() = 0;
  // kResourceExhausted.
  virtual StatusOr<codec::predict::Tables> SaveTables() = 0;
  // To both. `tables` have this shape.
  virtual Status RestoreTables(const codec::predict::Tables& tables) = 0;

  // `tensor` is whole: nothing that is under way writes it, and nothing of this reads it when it
  // returns.
  virtual StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                                       const codec::Context& context) = 0;
  // `blob` is the start of a NewBlob. Gives a tensor of fp32 that is whole.
  virtual StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                          const codec::Context& context) = 0;

  // For another codec, both ways, in this one's memory and on its stream: calls of both come one at
  // a time, as if of one. It adds nothing but what blobs larger than this one's take for as long as
  // they are there. kInvalidArgument for a codec that needs more than that.
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) = 0;

  // On the host.
  static std::unique_ptr<BoundaryCodec> Create(const BoundaryCodecOptions& options);
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_BOUNDARY_CODEC_H_
