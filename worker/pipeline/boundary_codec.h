// How tensors become bytes at one boundary of a stage and bytes become tensors, where the stage's
// tensors are: in the host's memory, or in a GPU's (cuda_boundary_codec.h).
//
// Threads: Encode and Decode one at a time; NewBlob on any. What they give may outlive the codec.
#ifndef LONGHAUL_WORKER_PIPELINE_BOUNDARY_CODEC_H_
#define LONGHAUL_WORKER_PIPELINE_BOUNDARY_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "codec/codec.h"
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
};

class BoundaryCodec {
 public:
  virtual ~BoundaryCodec() = default;

  // For what is to be decoded. kResourceExhausted.
  virtual StatusOr<BlobBuffer> NewBlob(size_t bytes) = 0;

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
