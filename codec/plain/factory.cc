#include "codec/plain/factory.h"

#include <string>

#include "codec/fixed_size_codec.h"
#include "codec/plain/cpu/kernels.h"
#include "codec/plain/format.h"

namespace longhaul::codec::plain {
namespace {

class PlainCodec final : public FixedSizeCodec {
 public:
  explicit PlainCodec(CodecId id)
      : FixedSizeCodec(id, std::string(ToString(id)), CodecParameters{}), id_(id) {}

 private:
  uint64_t PayloadBytes(const Shape& shape) const override {
    return EncodedBytes(shape, id_) - kBlobHeaderBytes;
  }
  uint64_t ScratchBytes(const Shape& /*shape*/) const override { return 0; }
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

}  // namespace longhaul::codec::plain
