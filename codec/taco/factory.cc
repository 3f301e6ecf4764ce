#include "codec/taco/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/taco/cpu/kernels.h"

namespace longhaul::codec::taco {
namespace {

class TacoCodec final : public FixedSizeCodec {
 public:
  explicit TacoCodec(const Params& params)
      : FixedSizeCodec(CodecId::kTaco, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape.elements(), params_).end;
  }
  uint64_t ScratchBytes(const Shape& /*shape*/) const override { return 0; }
  uint64_t EncodePayload(const TensorView& in, const Context& context, std::byte* /*scratch*/,
                         std::byte* payload) const override {
    return cpu::Encode(in.data, in.dtype, in.shape.elements(), params_, context.parallel, payload);
  }
  Status DecodePayload(const std::byte* payload, const Context& context,
                       const MutableTensorView& out) const override {
    cpu::Decode(payload, params_, context.parallel, out.data, out.dtype, out.shape.elements());
    return absl::OkStatus();
  }

  Params params_;
};

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<TacoCodec>(params);
}

}  // namespace longhaul::codec::taco
