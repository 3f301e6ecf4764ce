// Any bytes as a blob: the header, and the decoder that it names; a codec with state once without
// and once with messages of zeros, or with tables that have learned nothing.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/fuzz/target.h"
#include "codec/blob.h"
#include "codec/convert.h"
#include "codec/messages/memory_store.h"
#include "codec/predict/tables.h"
#include "codec/registry.h"

namespace longhaul::codec {
namespace {

constexpr std::array<uint64_t, 2> kSamples = {1, 0};

// What both sides remember after a tensor of zeros.
std::unique_ptr<MessageStore> ZeroMessages(const Codec& codec, const Shape& shape,
                                           const Context& context) {
  auto store = std::make_unique<MemoryStore>(kSamples.size(), codec.MessageBytes(shape));
  Context of = context;
  of.messages = store.get();
  AlignedBuffer zeros(shape.elements() * sizeof(float));
  std::memset(zeros.span().data(), 0, zeros.size());
  AlignedBuffer workspace(codec.WorkspaceBytes(shape));
  AlignedBuffer blob(codec.MaxEncodedBytes(shape));
  EncodeResult result;
  const TensorView in{zeros.span().data(), Dtype::kF32, shape};
  if (!codec.Encode(in, of, workspace.span(), blob.span(), &result).ok()) std::abort();
  return store;
}

bool Taken(const Status& status) {
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) std::abort();
  return status.ok();
}

constexpr uint32_t kVocabulary = 40;

bool DecodeWithTables(const Codec& codec, std::span<const std::byte> blob, const Shape& shape) {
  AlignedBuffer workspace(codec.WorkspaceBytes(shape));
  AlignedBuffer tensor(shape.elements() * sizeof(float));
  const MutableTensorView out{tensor.span().data(), Dtype::kF32, shape};
  bool taken = false;
  for (const bool learns : {false, true}) {
    auto tables =
        predict::Tables::Create(predict::TablesShapeFor(codec, kVocabulary, shape.channels));
    if (!tables.ok()) std::abort();
    Context context;
    context.tables = &*tables;
    context.learns = learns;
    if (!Taken(codec.Decode(blob, context, workspace.span(), out))) continue;
    taken = true;
    const uint64_t numbers = tables->shape().rows() * shape.channels;
    for (uint64_t k = 0; k < numbers; ++k) {
      if (!std::isfinite(Bf16ToF32(tables->Row(0)[k]))) std::abort();
    }
    for (uint32_t c = 0; c < shape.channels; ++c) {
      if (!std::isfinite(tables->mean()[c])) std::abort();
    }
    // Now they may have learned something.
    (void)Taken(codec.Decode(blob, context, workspace.span(), out));
  }
  return taken;
}

bool DecodeWithMessages(const Codec& codec, std::span<const std::byte> blob, const Shape& shape) {
  Context context;
  context.sample_ids = std::span(kSamples).first(shape.samples);
  const auto store = ZeroMessages(codec, shape, context);
  context.messages = store.get();
  AlignedBuffer workspace(codec.WorkspaceBytes(shape));
  AlignedBuffer tensor(shape.elements() * sizeof(float));
  const MutableTensorView out{tensor.span().data(), Dtype::kF32, shape};
  const bool taken = Taken(codec.Decode(blob, context, workspace.span(), out));
  // Now its messages are not those of zeros.
  (void)Taken(codec.Decode(blob, context, workspace.span(), out));
  return taken;
}

}  // namespace
}  // namespace longhaul::codec

LH_FUZZ_TARGET(codec_decode) {
  using namespace longhaul;         // NOLINT(google-build-using-namespace)
  using namespace longhaul::codec;  // NOLINT(google-build-using-namespace)
  const auto blob = std::as_bytes(std::span(data, size));
  const auto header = ParseBlobHeader(blob);
  const auto codec = CodecOfBlob(blob);
  if (!codec.ok()) return false;
  if (!header.ok()) std::abort();  // a codec was found in a header that is none
  // The decoder refuses other sizes; do not allocate a tensor for them.
  if (size < (*codec)->MinEncodedBytes(header->shape) ||
      size > (*codec)->MaxEncodedBytes(header->shape)) {
    return false;
  }
  AlignedBuffer workspace((*codec)->WorkspaceBytes(header->shape));
  bool taken = false;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    AlignedBuffer tensor(header->shape.elements() * BytesPerElement(dtype));
    const MutableTensorView out{tensor.span().data(), dtype, header->shape};
    taken = Taken((*codec)->Decode(blob, {}, workspace.span(), out));
  }
  if ((*codec)->MessageBytes(header->shape) > 0 && header->shape.samples <= kSamples.size()) {
    taken = DecodeWithMessages(**codec, blob, header->shape) || taken;
  }
  // Not tables of gigabytes.
  constexpr uint64_t kMostTableValues = 16 << 20;
  const uint64_t values = (*codec)->TableRows(kVocabulary) * header->shape.channels;
  if (values > 0 && values < kMostTableValues && header->shape.elements() > 0) {
    taken = DecodeWithTables(**codec, blob, header->shape) || taken;
  }
  return taken;
}
