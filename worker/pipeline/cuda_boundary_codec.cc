#include "worker/pipeline/cuda_boundary_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/blob.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/message_staging.h"
#include "worker/pipeline/buffer_pool.h"

namespace longhaul::worker {
namespace {

using codec::cuda::CudaCodec;
using codec::cuda::DeviceSpan;
using codec::cuda::MessageStaging;
using cuda::DeviceBuffer;
using cuda::Event;
using cuda::PinnedBuffer;
using cuda::Stream;

// One tensor takes microseconds; a device that has not done it by then will not.
constexpr absl::Duration kPatience = absl::Seconds(60);

StatusOr<std::optional<MessageStaging>> StagingOf(const cuda::Device& device,
                                                  const CudaCodec& codec,
                                                  const codec::Shape& shape) {
  if (codec.cpu().MessageBytes(shape) == 0) return std::nullopt;
  LH_ASSIGN_OR_RETURN(MessageStaging staging, MessageStaging::Create(device, codec, shape));
  return std::optional(std::move(staging));
}

class CudaBoundaryCodec final : public BoundaryCodec {
 public:
  // What one device holds for it.
  struct Parts {
    Stream stream;
    Event done;
    CudaCodec send, receive;
    std::optional<MessageStaging> send_staging, receive_staging;
    DeviceBuffer workspace, blob;
    DeviceBuffer fault_dev;  // a word that a decoder sets
    PinnedBuffer words;      // its value, and zero
  };

  CudaBoundaryCodec(const cuda::Device& device, const codec::Shape& shape, size_t blob_bytes,
                    Parts parts)
      : device_(device),
        shape_(shape),
        blob_bytes_(blob_bytes),
        parts_(std::move(parts)),
        blobs_([device, blob_bytes] { return PinnedBuffer::Create(device, blob_bytes); }),
        tensors_([device, bytes = shape.elements() * sizeof(float)] {
          return DeviceBuffer::Create(device, bytes);
        }) {
    std::memset(parts_.words.span().data(), 0, parts_.words.span().size());
  }

  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    if (bytes > blob_bytes_) {
      return absl::InvalidArgumentError(
          fmt::format("expected a blob of at most {} bytes, got {}", blob_bytes_, bytes));
    }
    LH_ASSIGN_OR_RETURN(std::shared_ptr<PinnedBuffer> memory, blobs_.Take());
    return BlobBuffer{memory->span(), memory};
  }

  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& context) override;
  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& context) override;

 private:
  DeviceSpan workspace() { return {parts_.workspace.data_dev(), parts_.workspace.size()}; }
  Status Wait();

  const cuda::Device device_;
  const codec::Shape shape_;
  const size_t blob_bytes_;
  Parts parts_;
  BufferPool<PinnedBuffer> blobs_;
  BufferPool<DeviceBuffer> tensors_;
};

// For what is queued on the stream.
Status CudaBoundaryCodec::Wait() {
  LH_RETURN_IF_ERROR(parts_.done.Record(parts_.stream));
  return parts_.done.Await(Deadline::After(kPatience));
}

StatusOr<EncodedBlob> CudaBoundaryCodec::Encode(const codec::TensorView& tensor,
                                                const codec::Context& context) {
  LH_ASSIGN_OR_RETURN(BlobBuffer buffer, NewBlob(parts_.send.MaxEncodedBytes(shape_)));
  std::optional<MessageStaging>& staging = parts_.send_staging;
  if (staging) LH_RETURN_IF_ERROR(staging->Load(context, &parts_.stream));
  LH_RETURN_IF_ERROR(parts_.send.Encode(
      tensor, context, workspace(), {parts_.blob.data_dev(), parts_.blob.size()}, parts_.stream,
      staging ? staging->messages() : codec::cuda::DeviceMessages{}));
  if (staging) LH_RETURN_IF_ERROR(staging->Fetch(&parts_.stream));
  // What has a fixed size comes at once; else its header says how much there is.
  const bool fixed = parts_.send.cpu().fixed_size();
  const size_t most = parts_.send.MaxEncodedBytes(shape_);
  LH_RETURN_IF_ERROR(parts_.stream.Copy(buffer.bytes.data(), parts_.blob.data_dev(),
                                        fixed ? most : codec::kBlobHeaderBytes));
  LH_RETURN_IF_ERROR(Wait());
  const size_t bytes = codec::BlobBytes(buffer.bytes);
  if (bytes > most) {
    return absl::InternalError(fmt::format("{} wrote a header of {} bytes where {} are the most",
                                           device_.Name(), bytes, most));
  }
  if (!fixed && bytes > codec::kBlobHeaderBytes) {
    LH_RETURN_IF_ERROR(parts_.stream.Copy(
        buffer.bytes.data() + codec::kBlobHeaderBytes,
        static_cast<const std::byte*>(parts_.blob.data_dev()) + codec::kBlobHeaderBytes,
        bytes - codec::kBlobHeaderBytes));
    LH_RETURN_IF_ERROR(Wait());
  }
  LH_ASSIGN_OR_RETURN(const codec::BlobHeader header,
                      codec::ParseBlobHeader(buffer.bytes.first(bytes)));
  if (staging) LH_RETURN_IF_ERROR(staging->Remember(context, buffer.bytes.first(bytes)));
  return EncodedBlob{std::move(buffer), bytes, header.nonfinite_tiles};
}

StatusOr<BoundaryTensor> CudaBoundaryCodec::Decode(std::span<const std::byte> blob,
                                                   const codec::Context& context) {
  if (blob.size() < codec::kBlobHeaderBytes || blob.size() > parts_.blob.size()) {
    return absl::InvalidArgumentError(fmt::format("expected a blob of {} to {} bytes, got {}",
                                                  codec::kBlobHeaderBytes, parts_.blob.size(),
                                                  blob.size()));
  }
  std::optional<MessageStaging>& staging = parts_.receive_staging;
  if (staging) {
    LH_RETURN_IF_ERROR(staging->Load(context, &parts_.stream));
    LH_RETURN_IF_ERROR(staging->Check(blob));
  }
  LH_ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> values, tensors_.Take());
  auto* const fault_dev = static_cast<uint32_t*>(parts_.fault_dev.data_dev());
  const std::span<std::byte> words = parts_.words.span();
  LH_RETURN_IF_ERROR(
      parts_.stream.Copy(fault_dev, words.data() + sizeof(uint32_t), sizeof(uint32_t)));
  LH_RETURN_IF_ERROR(parts_.stream.Copy(parts_.blob.data_dev(), blob.data(), blob.size()));
  LH_RETURN_IF_ERROR(parts_.receive.Decode(
      blob.first(codec::kBlobHeaderBytes), {parts_.blob.data_dev(), blob.size()}, workspace(),
      {values->data_dev(), codec::Dtype::kF32, shape_}, fault_dev, parts_.stream,
      staging ? staging->messages() : codec::cuda::DeviceMessages{}));
  if (staging) LH_RETURN_IF_ERROR(staging->Fetch(&parts_.stream));
  LH_RETURN_IF_ERROR(parts_.stream.Copy(words.data(), fault_dev, sizeof(uint32_t)));
  LH_RETURN_IF_ERROR(Wait());
  uint32_t fault = 0;
  std::memcpy(&fault, words.data(), sizeof fault);
  if (fault != 0) {
    return absl::InvalidArgumentError(
        "the blob's payload is none that an encoder writes: expected scales, counts and records "
        "that agree; the peer is broken or of another version");
  }
  if (staging) LH_RETURN_IF_ERROR(staging->Remember(context, blob));
  return BoundaryTensor{{values->data_dev(), codec::Dtype::kF32, shape_}, std::move(values)};
}

}  // namespace

StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options) {
  const codec::Shape& shape = options.shape;
  LH_ASSIGN_OR_RETURN(CudaCodec send, CudaCodec::Create(options.send->name()));
  LH_ASSIGN_OR_RETURN(CudaCodec receive, CudaCodec::Create(options.receive->name()));
  LH_ASSIGN_OR_RETURN(auto send_staging, StagingOf(device, send, shape));
  LH_ASSIGN_OR_RETURN(auto receive_staging, StagingOf(device, receive, shape));
  const size_t blob_bytes = std::max(send.MaxEncodedBytes(shape), receive.MaxEncodedBytes(shape));
  const size_t workspace_bytes =
      std::max<size_t>({send.WorkspaceBytes(shape), receive.WorkspaceBytes(shape), 64});
  LH_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
  LH_ASSIGN_OR_RETURN(Event done, Event::Create(device));
  LH_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Create(device, workspace_bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer blob, DeviceBuffer::Create(device, blob_bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer fault_dev, DeviceBuffer::Create(device, sizeof(uint32_t)));
  LH_ASSIGN_OR_RETURN(PinnedBuffer words, PinnedBuffer::Create(device, 2 * sizeof(uint32_t)));
  return std::make_unique<CudaBoundaryCodec>(
      device, shape, blob_bytes,
      CudaBoundaryCodec::Parts{std::move(stream), std::move(done), std::move(send),
                               std::move(receive), std::move(send_staging),
                               std::move(receive_staging), std::move(workspace), std::move(blob),
                               std::move(fault_dev), std::move(words)});
}

StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options) {
  if (gpu) return CreateCudaBoundaryCodec(*gpu, options);
  return BoundaryCodec::Create(options);
}

}  // namespace longhaul::worker
