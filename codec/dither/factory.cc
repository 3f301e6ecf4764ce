#include "codec/dither/factory.h"

#include <limits>
#include <string>

#include "codec/arguments.h"
#include "codec/dither/cpu/kernels.h"

namespace longhaul::codec::dither {
namespace {

class DitherCodec final : public Codec {
 public:
  explicit DitherCodec(const Params& params) : params_(params), name_(CodecString(params)) {}

  const std::string& name() const override { return name_; }
  CodecKind kind() const override { return {kId, ToHeader(params_)}; }
  bool fixed_size() const override { return false; }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    return BlobBytes(shape,
                     [](const Layout& layout) { return layout.groups * layout.group_words; });
  }
  size_t MinEncodedBytes(const Shape& shape) const override {
    return BlobBytes(shape, [](const Layout& /*layout*/) { return uint64_t{0}; });
  }
  size_t UsualEncodedBytes(const Shape& shape) const override {
    return BlobBytes(shape, [&](const Layout& /*layout*/) { return UsualWords(shape, params_); });
  }
  size_t WorkspaceBytes(const Shape& /*shape*/) const override { return 0; }

  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override {
    LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
    if (!Empty(in.shape)) {
      header.payload_bytes =
          cpu::Encode(in, params_, context, out.data() + kBlobHeaderBytes, &header.nonfinite_tiles);
    }
    FinishEncode(header, out, result);
    return absl::OkStatus();
  }

  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override {
    LH_ASSIGN_OR_RETURN(const BlobHeader header, BeginDecode(*this, blob, workspace, out));
    if (Empty(out.shape)) return CheckEmptyBlob(header);
    return cpu::Decode(blob.subspan(kBlobHeaderBytes), params_, context.parallel, out);
  }

 private:
  // Returns the size of a blob whose groups have words(layout) words in total.
  template <class Function>
  size_t BlobBytes(const Shape& shape, const Function& words) const {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    if (Empty(shape)) return kBlobHeaderBytes;
    const Layout layout = MakeLayout(shape, params_);
    return kBlobHeaderBytes + PayloadBytes(layout, words(layout));
  }

  const Params params_;
  const std::string name_;
};

// Parses `bits`, in halves: "1.5" gives 3.
bool ParseHalfBits(const std::string& value, uint32_t* half_bits) {
  double bits = 0;
  if (!ParseReal(value, &bits) || !(bits >= 0 && bits <= 8)) return false;
  *half_bits = static_cast<uint32_t>(2 * bits);
  return *half_bits == 2 * bits;
}

StatusOr<CodecPtr> Parse(const CodecText& text) {
  Params params;
  for (const auto& [key, value] : text.parameters) {
    const bool right = key == "bits" ? ParseHalfBits(value, &params.half_bits)
                                     : ParseUnsigned(value, &params.block);
    if (!right || !Possible(params)) return OutOfRange(text, key);
  }
  return Create(params);
}

std::vector<Section> Sections(const BlobHeader& header, std::span<const std::byte> /*payload*/) {
  const StatusOr<Params> params = FromHeader(header.parameters);
  if (!params.ok()) return {};
  const Layout layout = MakeLayout(header.shape, *params);
  return {{"noise", 0},
          {"ends", layout.ends},
          {"exponents", layout.exponents},
          {"states", layout.states},
          {"words", layout.words}};
}

}  // namespace

std::unique_ptr<const Codec> Create(const Params& params) {
  return std::make_unique<DitherCodec>(params);
}

Family Row() {
  return {
      .id = kId,
      .name = "dither",
      .what = "unbiased quantizer for gradients, in about `bits` bits",
      .parameters = {{"bits", "1|1.5|2|3", "2"}, {"block", "64|128|256", "128"}},
      .parse = Parse,
      .from_header = FromParameters<FromHeader, Create>,
      .sections = Sections,
      .device = MakeDevice,
      .for_gradients = {{"dither:bits=3,block=128", 0.149}, {"dither:bits=2,block=128", 0.298}}};
}

}  // namespace longhaul::codec::dither
