#include "worker/pipeline/boundary_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/aligned_buffer.h"

namespace longhaul::worker {
namespace {

class HostBoundaryCodec final : public BoundaryCodec {
 public:
  HostBoundaryCodec(BoundaryCodecOptions options, std::shared_ptr<AlignedBuffer> workspace)
      : options_(std::move(options)), workspace_(std::move(workspace)) {}

  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    auto memory = std::make_shared<AlignedBuffer>(bytes);
    return BlobBuffer{memory->span(), memory};
  }

  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& context) override {
    LH_ASSIGN_OR_RETURN(BlobBuffer buffer, NewBlob(options_.send->MaxEncodedBytes(options_.shape)));
    codec::EncodeResult result;
    LH_RETURN_IF_ERROR(
        options_.send->Encode(tensor, context, workspace_->span(), buffer.bytes, &result));
    return EncodedBlob{std::move(buffer), result.bytes, result.nonfinite_tiles};
  }

  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& context) override {
    auto values = std::make_shared<AlignedBuffer>(options_.shape.elements() * sizeof(float));
    void* const data = values->span().data();
    LH_RETURN_IF_ERROR(options_.receive->Decode(blob, context, workspace_->span(),
                                                {data, codec::Dtype::kF32, options_.shape}));
    return BoundaryTensor{{data, codec::Dtype::kF32, options_.shape}, std::move(values)};
  }

  StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) override {
    const size_t needed = codec->WorkspaceBytes(options_.shape);
    if (needed > workspace_->size()) {
      return absl::InvalidArgumentError(
          fmt::format("expected a codec that needs a workspace of at most {} bytes; {} needs {}",
                      workspace_->size(), codec->name(), needed));
    }
    return std::make_unique<HostBoundaryCodec>(
        BoundaryCodecOptions{options_.shape, codec, std::move(codec)}, workspace_);
  }

 private:
  const BoundaryCodecOptions options_;
  const std::shared_ptr<AlignedBuffer> workspace_;
};

}  // namespace

std::unique_ptr<BoundaryCodec> BoundaryCodec::Create(const BoundaryCodecOptions& options) {
  const size_t workspace_bytes = std::max(options.send->WorkspaceBytes(options.shape),
                                          options.receive->WorkspaceBytes(options.shape));
  return std::make_unique<HostBoundaryCodec>(options,
                                             std::make_shared<AlignedBuffer>(workspace_bytes));
}

}  // namespace longhaul::worker
