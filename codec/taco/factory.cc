#include "codec/taco/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/taco/cpu/kernels.h"

namespace longhaul::codec::taco {
namespace {

class TacoCodec final : public FixedSizeCodec {
 public:
  explicit TacoCodec(const Params& params)
      : FixedSizeCodec(kId, CodecString(params), ToHeader(params)), params_(params) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return MakeLayout(shape.elements(), params_).end;
  }
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

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    if (!SetParameter(key, value, &params)) return OutOfRange(text, key);
  }
  return Create(params);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> /*payload*/) {
  const StatusOr<Params> params = FromHeader(header.parameters);
  if (!params.ok()) return {};
  return {{"scales", 0}, {"codes", MakeLayout(header.shape.elements(), *params).codes}};
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<TacoCodec>(params);
}

Family Row() {
  return {
      .id = kId,
      .name = "taco",
      .what = "TACO: 8-bit floating point after a Hadamard transform, for collectives",
      .parameters = {{"format", "e4m3|e5m2|int8", "e4m3"}, {"block", "32|64|128|256|512", "256"}},
      .parse = Parse,
      .from_header = FromParameters<FromHeader, Create>,
      .sections = Sections,
      .device = MakeDevice};
}

}  // namespace longhaul::codec::taco
