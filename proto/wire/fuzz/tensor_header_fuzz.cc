// Any bytes as a tensor header.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "proto/wire/tensor_header.h"

// The name that libFuzzer calls; the smoke test calls it too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace wire = longhaul::wire;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = wire::DecodeTensorHeader(bytes);
  if (!header.ok()) return 0;
  // Every byte has a meaning: what was read is written as it was.
  std::array<std::byte, wire::kTensorHeaderBytes> out;
  wire::EncodeTensorHeader(*header, out);
  if (!std::ranges::equal(out, bytes.first(out.size()))) std::abort();
  if (header->chunk >= header->chunks || header->chunk_offset > header->blob_bytes) std::abort();
  return 0;
}
