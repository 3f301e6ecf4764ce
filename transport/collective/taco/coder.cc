#include "transport/collective/taco/coder.h"

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

std::unique_ptr<Coder> Coder::Create(const Engine* engine, const codec::taco::Params& params) {
  if (const cuda::Device* const device = engine->device(); device != nullptr) {
    return std::make_unique<CudaCoder>(*device, params);
  }
  return std::make_unique<HostCoder>(params);
}

}  // namespace longhaul::collective::taco
