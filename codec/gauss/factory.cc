#include "codec/gauss/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/gauss/cpu/kernels.h"

namespace longhaul::codec::gauss {
namespace {

class GaussCodec final : public FixedSizeCodec {
 public:
  explicit GaussCodec(const Params& params)
      : FixedSizeCodec(kId, CodecString(params), ToHeader(params)), params_(params) {}

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

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    uint32_t* const target = key == "bits" ? &params.bits : &params.block;
    if (!ParseUnsigned(value, target) || !Possible(params)) return OutOfRange(text, key);
  }
  return Create(params);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> /*payload*/) {
  const StatusOr<Params> params = FromHeader(header.parameters);
  if (!params.ok()) return {};
  const Layout layout = MakeLayout(header.shape, *params);
  return {{"exponents", layout.exponents}, {"scales", layout.scales}, {"codes", layout.codes}};
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<GaussCodec>(params);
}

Family Row() {
  return {.id = kId,
          .name = "gauss",
          .what = "quantizer of normal values after a Hadamard transform",
          .parameters = {{"bits", "2..6", "4"}, {"block", "64|128|256|512", "128"}},
          .parse = Parse,
          .from_header = FromParameters<FromHeader, Create>,
          .sections = Sections,
          .device = MakeDevice,
          .for_activations = {{"gauss:bits=6,block=128", 0.0253},
                              {"gauss:bits=5,block=128", 0.0498},
                              {"gauss:bits=4,block=128", 0.098},
                              {"gauss:bits=3,block=128", 0.187},
                              {"gauss:bits=2,block=128", 0.344}}};
}

}  // namespace longhaul::codec::gauss
