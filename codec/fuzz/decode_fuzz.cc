// Any bytes as a blob: the header, and the decoder that it names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/aligned_buffer.h"
#include "codec/blob.h"
#include "codec/registry.h"

// The name that libFuzzer calls; the smoke test calls it too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;         // NOLINT(google-build-using-namespace)
  using namespace longhaul::codec;  // NOLINT(google-build-using-namespace)
  const auto blob = std::as_bytes(std::span(data, size));
  const auto header = ParseBlobHeader(blob);
  const auto codec = CodecOfBlob(blob);
  if (!codec.ok()) return 0;
  if (!header.ok()) std::abort();  // a codec was found in a header that is none
  // The decoder refuses other sizes; do not allocate a tensor for them.
  if ((*codec)->MaxEncodedBytes(header->shape) != size) return 0;
  AlignedBuffer workspace((*codec)->WorkspaceBytes(header->shape));
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    AlignedBuffer tensor(header->shape.elements() * BytesPerElement(dtype));
    const MutableTensorView out{tensor.span().data(), dtype, header->shape};
    const Status status = (*codec)->Decode(blob, {}, workspace.span(), out);
    if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) std::abort();
  }
  return 0;
}
