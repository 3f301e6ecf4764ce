#include "coded_sums.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda/stream.h"
#include "codec/blob.h"
#include "codec/cuda/cuda_codec.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"

namespace longhaul::worker::testing {
namespace {

using collective::Block;
using collective::BytesPerElement;
using collective::Dtype;
using collective::Engine;
using collective::OwnedMemory;
using collective::Queue;
using collective::Reduction;

constexpr size_t kFaultBytes = 16;

codec::Dtype DtypeOf(Dtype dtype) {
  if (dtype == Dtype::kF32) return codec::Dtype::kF32;
  return dtype == Dtype::kF16 ? codec::Dtype::kF16 : codec::Dtype::kBf16;
}

class Coded final : public collective::CommunicatorOver {
 public:
  Coded(std::shared_ptr<Communicator> below, std::shared_ptr<const codec::Codec> codec,
        std::optional<codec::cuda::CudaCodec> on_device, std::unique_ptr<Engine> engine)
      : CommunicatorOver(codec->name(), std::move(below), absl::InfiniteDuration()),
        codec_(std::move(codec)),
        on_device_(std::move(on_device)),
        engine_(std::move(engine)) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    if (!Codes(dtype, count) || reduction != Reduction::kSum) {
      return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
    }
    LH_ASSIGN_OR_RETURN(const void* const coded, CodedInput(in, count, dtype, queue));
    LH_RETURN_IF_ERROR(below().AllReduce(coded, out, count, dtype, reduction, queue));
    Count(2 * BlobBytes(count) * (size() - 1) / size());
    return size() == 2 ? absl::OkStatus() : RoundTrip(out, out, count, dtype, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    if (!Codes(dtype, count) || reduction != Reduction::kSum) {
      return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
    }
    LH_ASSIGN_OR_RETURN(const void* const coded, CodedInput(in, size() * count, dtype, queue));
    Count(BlobBytes(count) * (size() - 1));
    return below().ReduceScatter(coded, out, count, dtype, reduction, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    if (!Codes(dtype, count)) {
      return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
    }
    LH_ASSIGN_OR_RETURN(const void* const coded, CodedInput(in, count, dtype, queue));
    Count(BlobBytes(count) * (size() - 1));
    return below().AllGather(coded, out, count, dtype, queue);
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(collective::Op op, uint64_t count, Dtype dtype) override {
    return below().Prepare(op, count, dtype);
  }

 private:
  static codec::Shape ShapeOf(uint64_t count) { return {1, 1, static_cast<uint32_t>(count)}; }
  bool Codes(Dtype dtype, uint64_t count) const {
    return dtype != Dtype::kBytes && size() > 1 && count > 0 &&
           count * size() <= std::numeric_limits<uint32_t>::max();
  }
  uint64_t BlobBytes(uint64_t count) const { return codec_->MaxEncodedBytes(ShapeOf(count)); }
  void Count(uint64_t bytes) {
    ++counted().calls;
    counted().tensor_bytes += bytes;
    counted().sent_bytes += bytes;
  }

  StatusOr<const void*> CodedInput(const void* in, uint64_t count, Dtype dtype, Queue queue) {
    LH_RETURN_IF_ERROR(collective::Reserve(*engine_, count * BytesPerElement(dtype), &coded_));
    LH_RETURN_IF_ERROR(RoundTrip(in, coded_.data(), count, dtype, queue));
    return coded_.data();
  }
  // `out` may be `in`.
  Status RoundTrip(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) {
    const codec::Shape shape = ShapeOf(count);
    LH_RETURN_IF_ERROR(collective::Reserve(*engine_, BlobBytes(count), &blob_));
    const codec::TensorView from{in, DtypeOf(dtype), shape};
    const codec::MutableTensorView to{out, DtypeOf(dtype), shape};
    // Another tensor each time, for codecs that draw random numbers.
    codec::Context context;
    context.step = Step(++calls_);
    if (on_device_) return OnDevice(from, to, context, queue);
    LH_RETURN_IF_ERROR(collective::Reserve(*engine_, codec_->WorkspaceBytes(shape), &workspace_));
    const std::span workspace(workspace_.data(), workspace_.size());
    codec::EncodeResult result;
    LH_RETURN_IF_ERROR(codec_->Encode(from, context, workspace,
                                      std::span(blob_.data(), BlobBytes(count)), &result));
    return codec_->Decode(std::span(blob_.data(), result.bytes), context, workspace, to);
  }
  Status OnDevice(const codec::TensorView& from, const codec::MutableTensorView& to,
                  const codec::Context& context, Queue queue) {
    const codec::Shape& shape = from.shape;
    LH_RETURN_IF_ERROR(
        collective::Reserve(*engine_, on_device_->WorkspaceBytes(shape), &workspace_));
    LH_RETURN_IF_ERROR(collective::Reserve(*engine_, kFaultBytes, &fault_));
    LH_RETURN_IF_ERROR(engine_->Zero(fault_.data(), kFaultBytes, queue));
    LH_ASSIGN_OR_RETURN(const std::vector<std::byte>* const header, HeaderOf(from));
    const cuda::Stream stream = cuda::Stream::Borrow(*engine_->device(), queue.stream);
    const codec::cuda::DeviceSpan workspace{workspace_.data(), workspace_.size()};
    const codec::cuda::DeviceSpan blob{blob_.data(), BlobBytes(shape.elements())};
    LH_RETURN_IF_ERROR(on_device_->Encode(from, context, workspace, blob, stream));
    return on_device_->Decode(*header, blob, workspace, to,
                              reinterpret_cast<uint32_t*>(fault_.data()), stream);
  }
  // All blobs of a shape have one header, but for the number of blocks that are not finite.
  StatusOr<const std::vector<std::byte>*> HeaderOf(const codec::TensorView& like) {
    const auto key = std::pair(like.shape.elements(), like.dtype);
    if (const auto known = headers_.find(key); known != headers_.end()) return &known->second;
    const std::vector<std::byte> zeros(like.size_bytes());
    std::vector<std::byte> blob(codec_->MaxEncodedBytes(like.shape));
    const std::unique_ptr<Engine> host = Engine::ForHost();
    LH_ASSIGN_OR_RETURN(const OwnedMemory workspace,
                        host->Allocate(codec_->WorkspaceBytes(like.shape)));
    codec::EncodeResult result;
    LH_RETURN_IF_ERROR(codec_->Encode({zeros.data(), like.dtype, like.shape}, {},
                                      std::span(workspace.data(), workspace.size()), blob,
                                      &result));
    blob.resize(codec::kBlobHeaderBytes);
    return &headers_.emplace(key, std::move(blob)).first->second;
  }

  const std::shared_ptr<const codec::Codec> codec_;
  const std::optional<codec::cuda::CudaCodec> on_device_;  // null: host memory
  const std::unique_ptr<Engine> engine_;
  OwnedMemory coded_, blob_, workspace_, fault_;
  std::map<std::pair<uint64_t, codec::Dtype>, std::vector<std::byte>> headers_;
  uint64_t calls_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<collective::Communicator>> CodedSums(
    std::shared_ptr<collective::Communicator> below, const cuda::Device* device,
    std::shared_ptr<const codec::Codec> codec) {
  if (!codec->fixed_size() || codec->remembers_samples() || codec->predicts_by_tokens()) {
    return InvalidArgument("expected a codec with blobs of a fixed size and no memory, got {}",
                           codec->name());
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, collective::EngineFor(*below, device));
  std::optional<codec::cuda::CudaCodec> on_device;
  if (device != nullptr) {
    LH_ASSIGN_OR_RETURN(on_device, codec::cuda::CudaCodec::Create(codec));
  }
  return std::make_unique<Coded>(std::move(below), std::move(codec), std::move(on_device),
                                 std::move(engine));
}

}  // namespace longhaul::worker::testing
