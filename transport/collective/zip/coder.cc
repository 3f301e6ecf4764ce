#include "transport/collective/zip/coder.h"

#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/blob.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/kernel_args.h"
#include "codec/zip/factory.h"
#include "codec/zip/format.h"

namespace longhaul::collective::zip {
namespace {

codec::Shape ShapeOf(uint64_t elements) {
  return {1, 1, static_cast<uint32_t>(elements)};
}

Status FaultStatus(uint32_t fault) {
  if (fault == 0) return absl::OkStatus();
  if (fault == codec::cuda::kFaultCut) {
    return absl::OutOfRangeError(
        "a tensor had more escapes than there was room for: a bounded exchange cut it; repeat what "
        "was called since the last Wait uncompressed");
  }
  return absl::DataLossError("a blob of another rank is none of zip's");
}

class HostCoder final : public Coder {
 public:
  explicit HostCoder(std::unique_ptr<const codec::Codec> codec) : codec_(std::move(codec)) {}

  Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue /*queue*/) override {
    codec::EncodeResult result;
    return codec_->Encode({in, codec::Dtype::kBf16, ShapeOf(elements)}, {}, {},
                          {blob, MostBytes(elements)}, &result);
  }
  Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out, IfCut if_cut,
                Queue /*queue*/) override {
    uint64_t size = 0;
    std::memcpy(&size, SizeWord(blob), sizeof(size));
    LH_ASSIGN_OR_RETURN(const uint64_t whole, BlobBytes(elements, size));
    if (whole > bytes) {
      if (if_cut == IfCut::kIsFault) fault_ |= codec::cuda::kFaultCut;
      return absl::OkStatus();
    }
    return codec_->Decode({blob, whole}, {}, {}, {out, codec::Dtype::kBf16, ShapeOf(elements)});
  }
  Status Reserve(uint64_t /*elements*/) override { return absl::OkStatus(); }
  Status TakeFault() override { return FaultStatus(std::exchange(fault_, 0)); }

 private:
  const std::unique_ptr<const codec::Codec> codec_;
  uint32_t fault_ = 0;
};

class CudaCoder final : public Coder {
 public:
  CudaCoder(Engine* engine, codec::cuda::CudaCodec codec, cuda::PinnedBuffer fault)
      : engine_(engine), codec_(std::move(codec)), fault_(std::move(fault)) {
    std::memset(fault_.span().data(), 0, fault_.span().size());
  }

  Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue queue) override {
    LH_RETURN_IF_ERROR(Reserve(elements));
    return codec_.Encode({in, codec::Dtype::kBf16, ShapeOf(elements)}, {},
                         {scratch_.data(), scratch_.size()}, {blob, MostBytes(elements)},
                         Borrow(queue));
  }
  Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out, IfCut if_cut,
                Queue queue) override {
    return codec_.DecodeUnseen({const_cast<std::byte*>(blob), bytes},
                               {out, codec::Dtype::kBf16, ShapeOf(elements)}, FaultWord(if_cut),
                               Borrow(queue));
  }
  Status Reserve(uint64_t elements) override {
    const size_t bytes = codec_.WorkspaceBytes(ShapeOf(elements));
    if (bytes <= scratch_.size()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(scratch_, engine_->Allocate(bytes));
    return absl::OkStatus();
  }
  Status TakeFault() override {
    const auto take = [this](IfCut if_cut) {
      return std::atomic_ref(*FaultWord(if_cut)).exchange(0);
    };
    return FaultStatus(take(IfCut::kIsFault) | (take(IfCut::kLeave) & ~codec::cuda::kFaultCut));
  }

 private:
  cuda::Stream Borrow(Queue queue) const {
    return cuda::Stream::Borrow(*engine_->device(), queue.stream);
  }
  // In host memory: kernels write it where something is wrong, and nothing reads it from there.
  uint32_t* FaultWord(IfCut if_cut) {
    return reinterpret_cast<uint32_t*>(fault_.span().data()) + (if_cut == IfCut::kLeave ? 1 : 0);
  }

  Engine* const engine_;
  const codec::cuda::CudaCodec codec_;
  cuda::PinnedBuffer fault_;
  OwnedMemory scratch_;
};

}  // namespace

uint64_t MostBytes(uint64_t elements) {
  return elements == 0 ? 0 : codec::kBlobHeaderBytes + codec::zip::MakeLayout(elements).raw;
}

uint64_t StaticBytes(uint64_t elements) {
  if (elements == 0) return 0;
  const codec::zip::Layout layout = codec::zip::MakeLayout(elements);
  return codec::kBlobHeaderBytes + (layout.may_be_smaller ? layout.escapes : layout.raw);
}

StatusOr<uint64_t> BlobBytes(uint64_t elements, uint64_t size_word) {
  const uint64_t bytes = codec::kBlobHeaderBytes + size_word;
  if (size_word <= MostBytes(elements) && bytes >= StaticBytes(elements) &&
      bytes <= MostBytes(elements)) {
    return bytes;
  }
  return DataLoss("expected a blob of {} to {} bytes for {} elements, another rank says {}",
                  StaticBytes(elements), MostBytes(elements), elements, bytes);
}

StatusOr<std::unique_ptr<Coder>> Coder::Create(Engine* engine) {
  if (engine->device() == nullptr) {
    return std::make_unique<HostCoder>(codec::zip::Create());
  }
  LH_ASSIGN_OR_RETURN(codec::cuda::CudaCodec codec,
                      codec::cuda::CudaCodec::Create(codec::zip::Create()));
  LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer fault,
                      cuda::PinnedBuffer::Create(*engine->device(), 2 * sizeof(uint32_t)));
  auto coder = std::make_unique<CudaCoder>(engine, std::move(codec), std::move(fault));
  // A whole group and a part of one: each has a kernel.
  constexpr uint64_t kElements = codec::zip::kGroup + 8;
  LH_ASSIGN_OR_RETURN(const OwnedMemory elements, engine->Allocate(2 * kElements));
  LH_ASSIGN_OR_RETURN(const OwnedMemory blob, engine->Allocate(MostBytes(kElements)));
  LH_RETURN_IF_ERROR(coder->Reserve(kElements));
  const Status loaded = LaunchOnce(*engine->device(), [&](Queue queue) -> Status {
    LH_RETURN_IF_ERROR(engine->Zero(elements.data(), elements.size(), queue));
    LH_RETURN_IF_ERROR(coder->Encode(elements.data(), kElements, blob.data(), queue));
    return coder->Decode(blob.data(), blob.size(), kElements, elements.data(), IfCut::kIsFault,
                         queue);
  });
  LH_RETURN_IF_ERROR(loaded);
  return coder;
}

}  // namespace longhaul::collective::zip
