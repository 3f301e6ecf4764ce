#include "worker/pipeline/boundary_codec.h"

#include <algorithm>
#include <utility>

#include "base/aligned_buffer.h"

namespace longhaul::worker {
namespace {

class HostBoundaryCodec final : public BoundaryCodec {
 public:
  explicit HostBoundaryCodec(const BoundaryCodecOptions& options)
      : options_(options),
        workspace_(std::max(options.send->WorkspaceBytes(options.shape),
                            options.receive->WorkspaceBytes(options.shape))) {}

  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    auto memory = std::make_shared<AlignedBuffer>(bytes);
    return BlobBuffer{memory->span(), memory};
  }

  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& context) override {
    LH_ASSIGN_OR_RETURN(BlobBuffer buffer, NewBlob(options_.send->MaxEncodedBytes(options_.shape)));
    codec::EncodeResult result;
    LH_RETURN_IF_ERROR(
        options_.send->Encode(tensor, context, workspace_.span(), buffer.bytes, &result));
    return EncodedBlob{std::move(buffer), result.bytes, result.nonfinite_tiles};
  }

  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& context) override {
    auto values = std::make_shared<AlignedBuffer>(options_.shape.elements() * sizeof(float));
    void* const data = values->span().data();
    LH_RETURN_IF_ERROR(options_.receive->Decode(blob, context, workspace_.span(),
                                                {data, codec::Dtype::kF32, options_.shape}));
    return BoundaryTensor{{data, codec::Dtype::kF32, options_.shape}, std::move(values)};
  }

 private:
  const BoundaryCodecOptions options_;
  AlignedBuffer workspace_;
};

}  // namespace

std::unique_ptr<BoundaryCodec> BoundaryCodec::Create(const BoundaryCodecOptions& options) {
  return std::make_unique<HostBoundaryCodec>(options);
}

}  // namespace longhaul::worker
