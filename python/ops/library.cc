// torch.ops.longhaul. Shortcuts, functions for tracing and gradients are registered in Python
// (longhaul_codecs/).
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codec/registry.h"
#include "python/ops/on_device.h"
#include "python/ops/predict_link.h"
#include "python/ops/tensors.h"

namespace longhaul::ops {
namespace {

using codec::cuda::CudaCodec;

at::Tensor MakeBuffer(const at::Tensor& x, size_t bytes, bool zeros) {
  const std::vector<int64_t> size = {static_cast<int64_t>(bytes)};
  const at::TensorOptions options = x.options().dtype(at::kByte);
  return zeros ? at::zeros(size, options) : at::empty(size, options);
}

at::Tensor Encode(const at::Tensor& x, std::string_view text, int64_t seed,
                  std::string_view direction) {
  const std::shared_ptr<const CudaCodec> codec = FindCodec(text);
  const codec::Shape shape = ShapeOf(x.sizes());
  at::Tensor buffer = MakeBuffer(x, codec->MaxEncodedBytes(shape), /*zeros=*/false);
  EncodeTo(x.contiguous(), shape, *codec, ContextOf(seed, direction), buffer);
  if (codec->cpu().fixed_size()) return buffer;
  const auto bytes = static_cast<int64_t>(codec::BlobBytes(ReadHeader(buffer)));
  return bytes == buffer.numel() ? buffer : buffer.narrow(0, 0, bytes).clone();
}

std::tuple<at::Tensor, at::Tensor> EncodePadded(const at::Tensor& x, std::string_view text,
                                                int64_t seed, std::string_view direction) {
  const std::shared_ptr<const CudaCodec> codec = FindCodec(text);
  const codec::Shape shape = ShapeOf(x.sizes());
  const at::Tensor buffer =
      MakeBuffer(x, codec->MaxEncodedBytes(shape), /*zeros=*/!codec->cpu().fixed_size());
  EncodeTo(x.contiguous(), shape, *codec, ContextOf(seed, direction), buffer);
  // On the device: nobody waits for it.
  const at::Tensor payload =
      buffer.narrow(0, codec::kPayloadBytesOffset, sizeof(int64_t)).view(at::kLong);
  return {buffer, payload.squeeze(0).add(static_cast<int64_t>(codec::kBlobHeaderBytes))};
}

at::Tensor Decode(const at::Tensor& blob, at::OptionalIntArrayRef sizes,
                  std::optional<at::ScalarType> dtype, std::optional<std::string_view> name,
                  bool padded) {
  TORCH_CHECK_TYPE(blob.scalar_type() == at::kByte && blob.dim() == 1,
                   "expected a blob: a uint8 tensor of one dimension; got ", blob.scalar_type(),
                   " of ", blob.dim(), " dimensions");
  const HeaderBytes start = ReadHeader(blob);
  uint64_t bytes = static_cast<uint64_t>(blob.numel());
  if (padded && bytes >= start.size()) bytes = std::min(bytes, codec::BlobBytes(start));
  const codec::BlobHeader header = ValueOrThrow(codec::ParseBlobHeader(
      std::span(start).first(std::min<uint64_t>(bytes, start.size())), bytes));
  TORCH_CHECK_VALUE(!name.has_value() || *name == codec::ToString(header.codec),
                    "expected a blob of ", std::string(name.value_or("")), ", got one of ",
                    std::string(codec::ToString(header.codec)));
  const auto codec = FindCodec(ValueOrThrow(codec::CodecOfHeader(header))->name());
  // A header may announce a tensor far larger than the blob: before anything is allocated, the two
  // agree.
  const uint64_t least = codec->cpu().MinEncodedBytes(header.shape);
  const uint64_t most = codec->MaxEncodedBytes(header.shape);
  TORCH_CHECK_VALUE(least <= bytes && bytes <= most, "a blob of ", codec->cpu().name(),
                    " with its shape has ", least, " to ", most, " bytes; ", bytes, " came");
  const codec::Shape& shape = header.shape;
  const std::vector<int64_t> own = {shape.samples, shape.tokens, shape.channels};
  const at::IntArrayRef wanted = sizes.has_value() ? *sizes : at::IntArrayRef(own);
  TORCH_CHECK_VALUE(ShapeOf(wanted) == shape, "expected a blob of shape ", wanted,
                    ", missing dimensions being leading ones; it has ", at::IntArrayRef(own));
  const at::ScalarType type = dtype.value_or(ScalarTypeOf(header.source_dtype));
  DtypeOf(type);
  at::Tensor out = at::empty(wanted, blob.options().dtype(type));
  at::Tensor whole = blob.narrow(0, 0, static_cast<int64_t>(bytes)).contiguous();
  // Kernels read words; a part of another tensor may begin anywhere.
  if (reinterpret_cast<uintptr_t>(whole.data_ptr()) % 16 != 0) whole = whole.clone();
  DecodeTo(whole, start, shape, *codec, Origin::kForeign, out);
  return out;
}

at::Tensor Roundtrip(const at::Tensor& x, std::string_view text,
                     std::optional<std::string_view> backward_text, int64_t seed,
                     std::string_view direction) {
  const std::shared_ptr<const CudaCodec> codec = FindCodec(text);
  // Not used before the backward pass; a mistake is told now.
  if (backward_text.has_value()) FindCodec(*backward_text);
  const codec::Shape shape = ShapeOf(x.sizes());
  at::Tensor blob = MakeBuffer(x, codec->MaxEncodedBytes(shape), /*zeros=*/false);
  EncodeTo(x.contiguous(), shape, *codec, ContextOf(seed, direction), blob);
  HeaderBytes header;
  if (codec->cpu().fixed_size()) {
    header = HeaderOfFixedSize(x, shape, *codec);
  } else {
    header = ReadHeader(blob);
    blob = blob.narrow(0, 0, static_cast<int64_t>(codec::BlobBytes(header)));
  }
  at::Tensor out = at::empty(x.sizes(), x.options());
  DecodeTo(blob, header, shape, *codec, Origin::kOurs, out);
  return out;
}

int64_t MaxEncodedBytes(at::IntArrayRef sizes, std::string_view text) {
  return static_cast<int64_t>(FindCodec(text)->MaxEncodedBytes(ShapeOf(sizes)));
}

// The families that have operators of their own. decode makes a codec of a blob's header, so the
// header has to name the codec.
std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const codec::Family& family : codec::Families()) {
    if (family.from_header != nullptr) names.emplace_back(family.name);
  }
  return names;
}

// For tracing: throws what the operators would, and returns whether all blobs of a shape have one
// length.
bool Check(at::ScalarType type, int64_t dimensions, std::string_view text,
           std::string_view direction) {
  const std::shared_ptr<const CudaCodec> codec = FindCodec(text);
  DtypeOf(type);
  ShapeOf(std::vector<int64_t>(static_cast<size_t>(dimensions), 1));
  ContextOf(0, direction);
  return codec->cpu().fixed_size();
}

std::string BuiltForTorch() {
  return fmt::format("{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
}

TORCH_LIBRARY(longhaul, m) {
  m.set_python_module("longhaul_codecs.operators");
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def("encode(Tensor x, str codec, *, SymInt seed=0, str direction=\"forward\") -> Tensor", tags);
  m.def(
      "encode_padded(Tensor x, str codec, *, SymInt seed=0, str direction=\"forward\") -> (Tensor, "
      "Tensor)",
      tags);
  m.def(
      "decode(Tensor blob, SymInt[]? shape=None, *, ScalarType? dtype=None, str? codec=None, bool "
      "padded=False) -> Tensor",
      {at::Tag::pt2_compliant_tag, at::Tag::cudagraph_unsafe});  // it reads the blob's header
  m.def(
      "roundtrip(Tensor x, str codec, str? backward_codec=None, *, SymInt seed=0, str "
      "direction=\"forward\") -> Tensor",
      tags);
  m.def("max_encoded_bytes(int[] shape, str codec) -> int", MaxEncodedBytes);
  m.def("codec_names() -> str[]", CodecNames);
  m.def("_check(ScalarType dtype, int dimensions, str codec, str direction) -> bool", Check);
  m.def("_built_for_torch() -> str", BuiltForTorch);
  m.class_<PredictLink>("PredictLink")
      .def(torch::init<std::string, int64_t, std::vector<int64_t>, std::string>())
      .def("transfer", &PredictLink::Transfer)
      .def("check", &PredictLink::Check)
      .def("encoded_bytes", &PredictLink::EncodedBytes);
}

void Register(torch::Library* m) {
  m->impl("encode", Encode);
  m->impl("encode_padded", EncodePadded);
  m->impl("decode", Decode);
  m->impl("roundtrip", Roundtrip);
}

TORCH_LIBRARY_IMPL(longhaul, CPU, m) {
  Register(&m);
}
TORCH_LIBRARY_IMPL(longhaul, CUDA, m) {
  Register(&m);
}

}  // namespace
}  // namespace longhaul::ops
