#include "codec/plain/factory.h"

#include <string>

#include "codec/fixed_size_codec.h"
#include "codec/plain/cpu/kernels.h"
#include "codec/plain/format.h"

namespace longhaul::codec::plain {
namespace {

std::string_view NameOf(CodecId id) {
  return id == kNone ? "none" : id == kBf16 ? "bf16" : "fp16";
}

template <CodecId kId>
StatusOr<CodecPtr> Parse(const CodecText& /*text*/) {
  return Create(kId);
}

StatusOr<CodecPtr> FromBlob(const BlobHeader& header) {
  return Create(header.codec);
}

class PlainCodec final : public FixedSizeCodec {
 public:
  explicit PlainCodec(CodecId id)
      : FixedSizeCodec(id, std::string(NameOf(id)), CodecParameters{}), id_(id) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return EncodedBytes(shape, id_) - kBlobHeaderBytes;
  }
  uint64_t EncodePayload(const TensorView& in, const Context& context, std::byte* /*scratch*/,
                         std::byte* payload) const override {
    return cpu::Encode(in, WireDtype(id_), context.parallel, payload);
  }
  Status DecodePayload(const std::byte* payload, const Context& context,
                       const MutableTensorView& out) const override {
    cpu::Decode(payload, WireDtype(id_), context.parallel, out);
    return absl::OkStatus();
  }

  CodecId id_;
};

}  // namespace

std::unique_ptr<const Codec> Create(CodecId id) {
  return std::make_unique<PlainCodec>(id);
}

Family Row(CodecId id) {
  Family row = {.id = id, .name = NameOf(id), .from_header = FromBlob, .device = MakeDevice};
  if (id == kNone) {
    row.what = "fp32";
    row.parse = Parse<kNone>;
    row.for_activations = row.for_gradients = {{"none", 0}};
  } else if (id == kBf16) {
    row.what = "bfloat16";
    row.parse = Parse<kBf16>;
    row.for_activations = row.for_gradients = {{"bf16", 0.0017}};
  } else {
    row.what = "IEEE half precision";
    row.parse = Parse<kFp16>;
  }
  return row;
}

}  // namespace longhaul::codec::plain
