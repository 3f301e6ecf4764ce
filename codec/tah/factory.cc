#include "codec/tah/factory.h"

#include "codec/fixed_size_codec.h"
#include "codec/tah/cpu/kernels.h"
#include "codec/tile.h"

namespace longhaul::codec::tah {
namespace {

class TahCodec final : public FixedSizeCodec {
 public:
  explicit TahCodec(const Params& params)
      : FixedSizeCodec(kId, CodecString(params), ToHeader(params)), params_(params) {}

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

bool ParseAlloc(const std::string& text, uint32_t* alloc) {
  if (text == "token") {
    *alloc = kWholeToken;
    return true;
  }
  return ParseUnsigned(text, alloc) && *alloc > 0;
}

bool ParseShare(const std::string& text, uint32_t* p_65536) {
  double share = 0;
  if (!ParseReal(text, &share) || !(share >= 0 && share <= 1)) return false;
  *p_65536 = static_cast<uint32_t>(std::lround(share * 65536.0));
  return true;
}

bool ParseTau(const std::string& text, float* tau) {
  double value = 0;
  if (!ParseReal(text, &value) || std::isnan(value) || std::signbit(value)) return false;
  *tau = static_cast<float>(value);
  return true;
}

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  bool alloc_given = false;
  for (const auto& [key, value] : text.parameters) {
    if (key == "p" && !ParseShare(value, &params.p_65536)) return OutOfRange(text, key);
    if (key == "tile" && !(ParseUnsigned(value, &params.tile) && PossibleTile(params.tile))) {
      return OutOfRange(text, key);
    }
    if (key == "alloc" && !ParseAlloc(value, &params.alloc)) return OutOfRange(text, key);
    if (key == "tau" && !ParseTau(value, &params.tau)) return OutOfRange(text, key);
    if (key == "rounding" && !ParseRounding(value, &params.rounding)) return OutOfRange(text, key);
    alloc_given = alloc_given || key == "alloc";
  }
  if (!alloc_given) params.alloc = params.tile;
  if (params.alloc % params.tile != 0 || params.alloc > kMaxAlloc) return OutOfRange(text, "alloc");
  if (!Possible(params)) return OutOfRange(text, "tau");
  return Create(params);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> /*payload*/) {
  const StatusOr<Params> params = FromHeader(header.parameters);
  if (!params.ok()) return {};
  const Layout layout = MakeLayout(header.shape, *params);
  return {
      {"exponents", layout.exponents},    {"scales", layout.scales},       {"zeros", layout.zeros},
      {"pivots", layout.pivots},          {"precision", layout.precision}, {"codes", layout.codes},
      {"fourth bits", layout.fourth_bits}};
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<TahCodec>(params);
}

Family Row() {
  return {.id = kId,
          .name = "tah",
          .what = "TAH-Quant: 3 or 4 bits by entropy, Hadamard transform",
          .parameters = {{"p", "0..1", "0.8"},
                         {"tile", "32|64|128", "64"},
                         {"alloc", "a multiple of tile up to 1048576, or token", "tile"},
                         {"tau", "0..1000 or inf", "2"},
                         {"rounding", "nearest|stochastic", "nearest"}},
          .parse = Parse,
          .from_header = FromParameters<FromHeader, Create>,
          .sections = Sections,
          .device = MakeDevice};
}

}  // namespace longhaul::codec::tah
