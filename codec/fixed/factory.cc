#include "codec/fixed/factory.h"

#include "codec/fixed/cpu/kernels.h"
#include "codec/fixed_size_codec.h"

namespace longhaul::codec::fixed {
namespace {

class FixedCodec final : public FixedSizeCodec {
 public:
  explicit FixedCodec(const Params& params)
      : FixedSizeCodec(kId, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape, params_).end;
  }
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

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    const bool right = key == "bits"   ? ParseUnsigned(value, &params.bits)
                       : key == "tile" ? ParseUnsigned(value, &params.tile)
                                       : ParseRounding(value, &params.rounding);
    if (!right || !Possible(params)) return OutOfRange(text, key);
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
  return std::make_unique<FixedCodec>(params);
}

Family Row() {
  return {.id = kId,
          .name = "fixed",
          .what = "fixed point per tile",
          .parameters = {{"bits", "3..10", "6"},
                         {"tile", "32|64|128", "64"},
                         {"rounding", "nearest|stochastic", "nearest"}},
          .parse = Parse,
          .from_header = FromParameters<FromHeader, Create>,
          .sections = Sections,
          .device = MakeDevice,
          .for_activations = {{"fixed:bits=8,tile=64,rounding=nearest", 0.0059}},
          .for_gradients = {{"fixed:bits=8,tile=64,rounding=stochastic", 0.0084},
                            {"fixed:bits=6,tile=64,rounding=stochastic", 0.0343},
                            {"fixed:bits=5,tile=64,rounding=stochastic", 0.0709}}};
}

}  // namespace longhaul::codec::fixed
