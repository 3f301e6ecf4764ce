#include "codec/gauss/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/gauss/cpu/kernels.h"

namespace longhaul::codec::gauss {
namespace {

class GaussCodec final : public FixedSizeCodec {
 public:
  explicit GaussCodec(const Params& params)
      : FixedSizeCodec(CodecId::kGauss, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape, params_).end;
  }
  uint64_t ScratchBytes(const Shape& shape) const override {
    return cpu::ScratchBytes(MakeLayout(shape, params_));
  }
  uint64_t EncodePayload(const TensorView& in, const Context& /*context*/, std::byte* scratch,
                         std::byte* payload) const override {
    return cpu::Encode(in, params_, scratch, payload);
  }
  Status DecodePayload(const std::byte* payload, const Context& /*context*/,
                       const MutableTensorView& out) const override {
    return cpu::Decode(payload, params_, out);
  }

  Params params_;
};

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<GaussCodec>(params);
}

}  // namespace longhaul::codec::gauss
