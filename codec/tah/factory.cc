#include "codec/tah/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/tah/cpu/kernels.h"

namespace longhaul::codec::tah {
namespace {

class TahCodec final : public FixedSizeCodec {
 public:
  explicit TahCodec(const Params& params)
      : FixedSizeCodec(CodecId::kTah, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape, params_).end;
  }
  uint64_t ScratchBytes(const Shape& shape) const override {
    return cpu::ScratchBytes(MakeLayout(shape, params_));
  }
  uint64_t EncodePayload(const TensorView& in, const Context& context, std::byte* scratch,
                         std::byte* payload) const override {
    return cpu::Encode(in, params_, context, scratch, payload);
  }
  Status DecodePayload(const std::byte* payload, const Context& context,
                       const MutableTensorView& out) const override {
    return cpu::Decode(payload, params_, context.parallel, out);
  }

  Params params_;
};

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<TahCodec>(params);
}

}  // namespace longhaul::codec::tah
