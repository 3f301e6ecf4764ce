#include "codec/fixed/factory.h"

#include "codec/fixed/cpu/kernels.h"
#include "codec/fixed_size_codec.h"

namespace longhaul::codec::fixed {
namespace {

class FixedCodec final : public FixedSizeCodec {
 public:
  explicit FixedCodec(const Params& params)
      : FixedSizeCodec(CodecId::kFixed, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape, params_).end;
  }
  uint64_t ScratchBytes(const Shape& /*shape*/) const override { return 0; }
  uint64_t EncodePayload(const TensorView& in, const Context& context, std::byte* /*scratch*/,
                         std::byte* payload) const override {
    return cpu::Encode(in, params_, context, payload);
  }
  Status DecodePayload(const std::byte* payload, const Context& context,
                       const MutableTensorView& out) const override {
    return cpu::Decode(payload, params_, context.parallel, out);
  }

  Params params_;
};

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<FixedCodec>(params);
}

}  // namespace longhaul::codec::fixed
