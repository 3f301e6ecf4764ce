#include "codec/zip/factory.h"

#include <limits>
#include <string>

#include "codec/arguments.h"
#include "codec/zip/cpu/kernels.h"
#include "codec/zip/format.h"

namespace longhaul::codec::zip {
namespace {

class ZipCodec final : public Codec {
 public:
  const std::string& name() const override { return name_; }
  CodecKind kind() const override { return {kId, {}}; }
  bool fixed_size() const override { return false; }
  size_t MaxEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes + MakeLayout(shape.elements()).raw;
  }
  size_t MinEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    return kBlobHeaderBytes + PayloadBytes(MakeLayout(shape.elements()), 0);
  }
  size_t UsualEncodedBytes(const Shape& shape) const override {
    if (!CheckShape(shape).ok()) return std::numeric_limits<size_t>::max();
    // The window leaves out one in forty of normal numbers.
    const uint64_t elements = shape.elements();
    return kBlobHeaderBytes + PayloadBytes(MakeLayout(elements), elements / 40);
  }
  size_t WorkspaceBytes(const Shape& /*shape*/) const override { return 0; }

  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const override {
    LH_ASSIGN_OR_RETURN(BlobHeader header, BeginEncode(*this, in, workspace, out, result));
    if (!Empty(in.shape)) {
      header.payload_bytes =
          cpu::Encode(in, context.parallel, out.data() + kBlobHeaderBytes, &header.nonfinite_tiles);
    }
    FinishEncode(header, out, result);
    return absl::OkStatus();
  }

  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const override {
    LH_ASSIGN_OR_RETURN(const BlobHeader header, BeginDecode(*this, blob, workspace, out));
    if (Empty(out.shape)) return CheckEmptyBlob(header);
    return cpu::Decode(blob.subspan(kBlobHeaderBytes), context.parallel, out);
  }

 private:
  const std::string name_ = "zip";
};

StatusOr<CodecPtr> FromBlob(const BlobHeader& header) {
  if (header.parameters != CodecParameters{}) {
    return absl::InvalidArgumentError("the blob's parameters of zip are not zeros");
  }
  return Create();
}

}  // namespace

std::unique_ptr<const Codec> Create() {
  return std::make_unique<ZipCodec>();
}

Family Row() {
  return {.id = kId,
          .name = "zip",
          .what = "bfloat16 without loss, in about 11.3 bits",
          .parse = [](const CodecText& /*text*/) -> StatusOr<CodecPtr> { return Create(); },
          .from_header = FromBlob,
          .device = MakeDevice};
}

}  // namespace longhaul::codec::zip
