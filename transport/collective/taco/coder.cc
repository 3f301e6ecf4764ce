#include "transport/collective/taco/coder.h"

#include <array>

#include "base/cuda/stream.h"
#include "codec/cuda/cuda_taco.h"
#include "codec/taco/flat.h"

namespace longhaul::collective::taco {
namespace {

codec::Dtype DtypeOf(Dtype dtype) {
  if (dtype == Dtype::kF32) return codec::Dtype::kF32;
  return dtype == Dtype::kF16 ? codec::Dtype::kF16 : codec::Dtype::kBf16;
}

codec::TacoReduceArgs ArgsOf(std::span<const void* const> parts, size_t own, uint64_t elements,
                             codec::Dtype dtype, const codec::taco::Params& params,
                             std::byte* payload, void* out) {
  codec::TacoReduceArgs args;
  args.parts = parts;
  args.own = own;
  args.dtype = dtype;
  args.elements = elements;
  args.params = params;
  if (payload != nullptr) {
    args.out_payload = {payload, codec::TacoPayloadBytes(elements, params)};
  }
  args.out = out;
  return args;
}

class HostCoder final : public Coder {
 public:
  explicit HostCoder(const codec::taco::Params& params) : params_(params) {}

  uint64_t Bytes(uint64_t elements) const override {
    return codec::TacoPayloadBytes(elements, params_);
  }
  Status Encode(const void* in, uint64_t elements, Dtype dtype, std::byte* payload,
                Queue /*queue*/) override {
    return codec::TacoEncodeFlat(in, DtypeOf(dtype), elements, params_, {payload, Bytes(elements)});
  }
  Status Decode(const std::byte* payload, uint64_t elements, Dtype dtype, void* out,
                Queue /*queue*/) override {
    return codec::TacoDecodeFlat({payload, Bytes(elements)}, params_, out, DtypeOf(dtype),
                                 elements);
  }
  Status Reduce(std::span<const void* const> parts, size_t own, uint64_t elements, Dtype dtype,
                std::byte* payload, void* out, Queue /*queue*/) override {
    return codec::TacoReduce(ArgsOf(parts, own, elements, DtypeOf(dtype), params_, payload, out));
  }

 private:
  const codec::taco::Params params_;
};

class CudaCoder final : public Coder {
 public:
  CudaCoder(const cuda::Device& device, const codec::taco::Params& params)
      : device_(device), params_(params) {}

  uint64_t Bytes(uint64_t elements) const override {
    return codec::TacoPayloadBytes(elements, params_);
  }
  Status Encode(const void* in, uint64_t elements, Dtype dtype, std::byte* payload,
                Queue queue) override {
    return codec::cuda::TacoEncodeFlat(in, DtypeOf(dtype), elements, params_,
                                       {payload, Bytes(elements)}, Borrow(queue));
  }
  Status Decode(const std::byte* payload, uint64_t elements, Dtype dtype, void* out,
                Queue queue) override {
    return codec::cuda::TacoDecodeFlat({const_cast<std::byte*>(payload), Bytes(elements)}, params_,
                                       out, DtypeOf(dtype), elements, Borrow(queue));
  }
  Status Reduce(std::span<const void* const> parts, size_t own, uint64_t elements, Dtype dtype,
                std::byte* payload, void* out, Queue queue) override {
    return codec::cuda::TacoReduce(
        ArgsOf(parts, own, elements, DtypeOf(dtype), params_, payload, out), Borrow(queue));
  }

 private:
  cuda::Stream Borrow(Queue queue) const { return cuda::Stream::Borrow(device_, queue.stream); }

  const cuda::Device device_;
  const codec::taco::Params params_;
};

}  // namespace

StatusOr<std::unique_ptr<Coder>> Coder::Create(Engine* engine, const codec::taco::Params& params) {
  if (engine->device() == nullptr) return std::make_unique<HostCoder>(params);
  auto coder = std::make_unique<CudaCoder>(*engine->device(), params);
  // Whole blocks and a part of one, of every dtype.
  const uint64_t elements = 4 * codec::taco::kMaxBlock + 8;
  LH_ASSIGN_OR_RETURN(const OwnedMemory numbers, engine->Allocate(sizeof(float) * elements));
  LH_ASSIGN_OR_RETURN(const OwnedMemory payload, engine->Allocate(coder->Bytes(elements)));
  const Status loaded = LaunchOnce(*engine->device(), [&](Queue queue) -> Status {
    LH_RETURN_IF_ERROR(engine->Zero(numbers.data(), numbers.size(), queue));
    const std::array<const void*, 2> parts{numbers.data(), payload.data()};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
      LH_RETURN_IF_ERROR(coder->Encode(numbers.data(), elements, dtype, payload.data(), queue));
      LH_RETURN_IF_ERROR(coder->Decode(payload.data(), elements, dtype, numbers.data(), queue));
      for (std::byte* const encoded : {static_cast<std::byte*>(nullptr), payload.data()}) {
        LH_RETURN_IF_ERROR(
            coder->Reduce(parts, 0, elements, dtype, encoded, numbers.data(), queue));
      }
    }
    return absl::OkStatus();
  });
  LH_RETURN_IF_ERROR(loaded);
  return coder;
}

}  // namespace longhaul::collective::taco
