#include "codec/blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "codec/registry.h"

namespace longhaul::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "blobs are written as the memory is");

constexpr std::array<char, 4> kMagic = {'L', 'H', 'B', 'L'};

// As the table in the header file; no padding.
struct RawHeader {
  std::array<char, 4> magic;
  uint16_t version;
  uint8_t codec;
  uint8_t dtype;
  uint32_t samples;
  uint32_t tokens;
  uint32_t channels;
  uint32_t zero1;
  uint64_t payload_bytes;
  CodecParameters parameters;
  uint64_t nonfinite_tiles;
  uint64_t zero2;
};
static_assert(sizeof(RawHeader) == kBlobHeaderBytes);
static_assert(offsetof(RawHeader, payload_bytes) == kPayloadBytesOffset);
static_assert(std::is_trivially_copyable_v<RawHeader>);

Status Bad(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

}  // namespace

size_t BytesPerElement(Dtype dtype) {
  return dtype == Dtype::kF32 ? 4 : 2;
}

std::string_view ToString(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "fp32";
    case Dtype::kF16:
      return "fp16";
    case Dtype::kBf16:
      return "bf16";
  }
  return "unknown dtype";
}

Status CheckShape(const Shape& shape) {
  if (shape.samples == 0 || shape.tokens == 0 || shape.channels == 0) return absl::OkStatus();
  const uint64_t rows = uint64_t{shape.samples} * shape.tokens;
  if (rows > kMaxElements || rows * shape.channels / shape.channels != rows ||
      rows * shape.channels > kMaxElements) {
    return Bad(fmt::format("a tensor may have at most 2^32 elements; {} x {} x {} has more",
                           shape.samples, shape.tokens, shape.channels));
  }
  return absl::OkStatus();
}

void WriteBlobHeader(const BlobHeader& header, std::span<std::byte> out) {
  RawHeader raw{};
  raw.magic = kMagic;
  raw.version = kBlobVersion;
  raw.codec = static_cast<uint8_t>(header.codec);
  raw.dtype = static_cast<uint8_t>(header.source_dtype);
  raw.samples = header.shape.samples;
  raw.tokens = header.shape.tokens;
  raw.channels = header.shape.channels;
  raw.payload_bytes = header.payload_bytes;
  raw.parameters = header.parameters;
  raw.nonfinite_tiles = header.nonfinite_tiles;
  std::memcpy(out.data(), &raw, sizeof(raw));
}

uint64_t BlobBytes(std::span<const std::byte> header) {
  RawHeader raw;
  std::memcpy(&raw, header.data(), sizeof(raw));
  return kBlobHeaderBytes + raw.payload_bytes;
}

StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> blob) {
  return ParseBlobHeader(blob, blob.size());
}

StatusOr<BlobHeader> ParseBlobHeader(std::span<const std::byte> start, uint64_t blob_bytes) {
  if (start.size() < kBlobHeaderBytes || blob_bytes < kBlobHeaderBytes) {
    return Bad(fmt::format("a blob has a header of {} bytes; only {} bytes came", kBlobHeaderBytes,
                           std::min<uint64_t>(start.size(), blob_bytes)));
  }
  RawHeader raw;
  std::memcpy(&raw, start.data(), sizeof(raw));
  if (raw.magic != kMagic) return Bad("not an encoded tensor: it does not start with 'LHBL'");
  if (raw.version != kBlobVersion) {
    return absl::UnimplementedError(
        fmt::format("a blob of version {} came; this program reads version {} (install the version "
                    "that wrote it)",
                    raw.version, kBlobVersion));
  }
  if (FindFamily(static_cast<CodecId>(raw.codec)) == nullptr) {
    return Bad(
        fmt::format("the blob's codec has number {}, which this program does not know", raw.codec));
  }
  if (raw.dtype < static_cast<uint8_t>(Dtype::kF32) ||
      raw.dtype > static_cast<uint8_t>(Dtype::kBf16)) {
    return Bad(fmt::format("the blob's dtype has number {}; 1 to 3 are known", raw.dtype));
  }
  if (raw.zero1 != 0 || raw.zero2 != 0) return Bad("the blob's reserved bytes are not zero");
  BlobHeader header;
  header.codec = static_cast<CodecId>(raw.codec);
  header.source_dtype = static_cast<Dtype>(raw.dtype);
  header.shape = {raw.samples, raw.tokens, raw.channels};
  header.payload_bytes = raw.payload_bytes;
  header.parameters = raw.parameters;
  header.nonfinite_tiles = raw.nonfinite_tiles;
  LH_RETURN_IF_ERROR(CheckShape(header.shape));
  if (raw.payload_bytes != blob_bytes - kBlobHeaderBytes) {
    return Bad(fmt::format("the blob's header announces a payload of {} bytes; {} bytes came",
                           raw.payload_bytes, blob_bytes - kBlobHeaderBytes));
  }
  if (header.nonfinite_tiles > header.shape.elements()) {
    return Bad("the blob counts more non-finite tiles than it has elements");
  }
  return header;
}

}  // namespace longhaul::codec
