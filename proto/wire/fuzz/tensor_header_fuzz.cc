// Any bytes as a tensor header.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/fuzz/target.h"
#include "proto/wire/tensor_header.h"

LH_FUZZ_TARGET(wire_tensor_header) {
  namespace wire = longhaul::wire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = wire::DecodeTensorHeader(bytes);
  if (!header.ok()) return false;
  // Every byte has a meaning: what was read is written as it was.
  std::array<std::byte, wire::kTensorHeaderBytes> out;
  wire::EncodeTensorHeader(*header, out);
  if (!std::ranges::equal(out, bytes.first(out.size()))) std::abort();
  if (header->chunk >= header->chunks || header->chunk_offset > header->blob_bytes) std::abort();
  return true;
}
