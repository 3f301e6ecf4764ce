#include "worker/pipeline/hosted_boundary_codec.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/registry.h"
#include "worker/pipeline/buffer_pool.h"

namespace longhaul::worker {
namespace {

// A copy takes milliseconds; a device that has not done it by then will not.
constexpr absl::Duration kCopyPatience = absl::Seconds(60);

// The way between the host and a device. Each buffer has room for the larger tensor in fp32.
struct HostWay {
  static StatusOr<std::shared_ptr<HostWay>> Create(const cuda::Device& device,
                                                   const BoundaryCodecOptions& options) {
    const size_t bytes = std::max<size_t>(
        std::max(options.shape.elements(), options.received_shape().elements()) * sizeof(float), 1);
    LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
    LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device));
    LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer pinned, cuda::PinnedBuffer::Create(device, bytes));
    return std::shared_ptr<HostWay>(new HostWay{std::move(stream), std::move(done),
                                                std::move(pinned),
                                                BufferPool<cuda::DeviceBuffer>([device, bytes] {
                                                  return cuda::DeviceBuffer::Create(device, bytes);
                                                })});
  }
  Status Copy(void* to, const void* from, size_t bytes) {
    LH_RETURN_IF_ERROR(stream.Copy(to, from, bytes));
    LH_RETURN_IF_ERROR(done.Record(stream));
    return done.Await(Deadline::After(kCopyPatience));
  }

  cuda::Stream stream;
  cuda::Event done;
  cuda::PinnedBuffer pinned;
  BufferPool<cuda::DeviceBuffer> tensors;
};

class HostedBoundaryCodec final : public BoundaryCodec {
 public:
  HostedBoundaryCodec(std::shared_ptr<HostWay> way, std::unique_ptr<BoundaryCodec> host)
      : way_(std::move(way)), host_(std::move(host)) {}

  StatusOr<BlobBuffer> NewBlob(size_t bytes) override { return host_->NewBlob(bytes); }
  codec::predict::TablesShape tables_shape() const override { return host_->tables_shape(); }
  StatusOr<uint64_t> TablesCheck() override { return host_->TablesCheck(); }
  StatusOr<codec::predict::Tables> SaveTables() override { return host_->SaveTables(); }
  Status RestoreTables(const codec::predict::Tables& tables) override {
    return host_->RestoreTables(tables);
  }

  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& context) override {
    const std::span<std::byte> pinned = way_->pinned.span();
    if (tensor.size_bytes() > pinned.size()) {
      return InvalidArgument("expected a tensor of at most {} bytes, got {}", pinned.size(),
                             tensor.size_bytes());
    }
    LH_RETURN_IF_ERROR(way_->Copy(pinned.data(), tensor.data, tensor.size_bytes()));
    return host_->Encode({pinned.data(), tensor.dtype, tensor.shape}, context);
  }

  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& context) override {
    LH_ASSIGN_OR_RETURN(BoundaryTensor decoded, host_->Decode(blob, context));
    LH_ASSIGN_OR_RETURN(std::shared_ptr<cuda::DeviceBuffer> values, way_->tensors.Take());
    std::memcpy(way_->pinned.span().data(), decoded.view.data, decoded.view.size_bytes());
    LH_RETURN_IF_ERROR(
        way_->Copy(values->data_dev(), way_->pinned.span().data(), decoded.view.size_bytes()));
    return BoundaryTensor{{values->data_dev(), decoded.view.dtype, decoded.view.shape},
                          std::move(values),
                          std::move(decoded.token_ids)};
  }

  StatusOr<std::vector<float>> CopyRows(const codec::TensorView& tensor,
                                        std::span<const size_t> rows) override {
    const size_t channels = tensor.shape.channels;
    std::vector<float> copied(rows.size() * channels);
    const auto* const values = static_cast<const float*>(tensor.data);
    for (size_t i = 0; i < rows.size(); ++i) {
      LH_RETURN_IF_ERROR(way_->Copy(copied.data() + i * channels, values + rows[i] * channels,
                                    channels * sizeof(float)));
    }
    return copied;
  }

  StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) override {
    LH_ASSIGN_OR_RETURN(std::unique_ptr<BoundaryCodec> host, host_->Sharing(std::move(codec)));
    return std::make_unique<HostedBoundaryCodec>(way_, std::move(host));
  }

 private:
  const std::shared_ptr<HostWay> way_;
  const std::unique_ptr<BoundaryCodec> host_;
};

}  // namespace

bool NeedsHost(const BoundaryCodecOptions& options) {
  const auto on_host = [](const codec::Codec& codec) {
    const codec::Family* const family = codec::FindFamily(codec.kind().id);
    return family != nullptr && family->device == nullptr;
  };
  return on_host(*options.send) || on_host(*options.receive);
}

StatusOr<std::unique_ptr<BoundaryCodec>> CreateHostedBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<HostWay> way, HostWay::Create(device, options));
  return std::make_unique<HostedBoundaryCodec>(std::move(way), BoundaryCodec::Create(options));
}

}  // namespace longhaul::worker
