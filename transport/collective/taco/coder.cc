#include "transport/collective/taco/coder.h"

#include "codec/taco/flat.h"

namespace longhaul::collective::taco {
namespace {

codec::Dtype DtypeOf(Dtype dtype) {
  if (dtype == Dtype::kF32) return codec::Dtype::kF32;
  return dtype == Dtype::kF16 ? codec::Dtype::kF16 : codec::Dtype::kBf16;
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
    codec::TacoReduceArgs args;
    args.parts = parts;
    args.own = own;
    args.dtype = DtypeOf(dtype);
    args.elements = elements;
    args.params = params_;
    if (payload != nullptr) args.out_payload = {payload, Bytes(elements)};
    args.out = out;
    return codec::TacoReduce(args);
  }

 private:
  const codec::taco::Params params_;
};

}  // namespace

std::unique_ptr<Coder> Coder::Create(const Engine* engine, const codec::taco::Params& params) {
  static_cast<void>(engine);
  return std::make_unique<HostCoder>(params);
}

}  // namespace longhaul::collective::taco
