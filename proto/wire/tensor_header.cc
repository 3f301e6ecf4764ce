#include "proto/wire/tensor_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "proto/wire/little_endian.h"

namespace longhaul::wire {
namespace {

constexpr uint32_t kTensorMagic = 0x4E54484C;  // "LHTN"
constexpr uint8_t kFlagValidation = 1, kFlagClean = 2, kFlagSampling = 4;

Status CheckReserved(std::span<const std::byte> bytes, uint8_t flags) {
  if (flags != 0 && flags != kFlagValidation && flags != (kFlagValidation | kFlagClean) &&
      flags != kFlagSampling) {
    return InvalidArgument("tensor header: expected flags 0, 1, 3 or 4, got {:#x}", flags);
  }
  if (GetLe<uint8_t>(bytes, 45) != 0 || GetLe<uint32_t>(bytes, 92) != 0 ||
      (flags != kFlagSampling && GetLe<uint32_t>(bytes, 88) != 0)) {
    return absl::InvalidArgumentError("tensor header: expected zero in the reserved fields");
  }
  if (const auto extension = GetLe<uint16_t>(bytes, 46); extension != 0) {
    return InvalidArgument(
        "tensor header: expected no extension in version {}, got one of {} bytes", kTensorVersion,
        extension);
  }
  return absl::OkStatus();
}

// "what i of n": i < n.
Status CheckIndex(const char* what, uint32_t index, uint32_t count) {
  if (index < count) return absl::OkStatus();
  return InvalidArgument("tensor header: expected {} below {}s, got {} of {}", what, what, index,
                         count);
}

Status CheckRanges(const TensorHeader& header) {
  LH_RETURN_IF_ERROR(CheckIndex("shard", header.shard, header.shards));
  LH_RETURN_IF_ERROR(CheckIndex("slice", header.slice, header.slices));
  LH_RETURN_IF_ERROR(CheckIndex("chunk", header.chunk, header.chunks));
  if (header.chunk_offset > header.blob_bytes) {
    return InvalidArgument("tensor header: chunk at offset {} of a tensor of {} bytes",
                           header.chunk_offset, header.blob_bytes);
  }
  if (header.chunk == 0 && header.chunk_offset != 0) {
    return InvalidArgument("tensor header: the first chunk must be at offset 0, it is at {}",
                           header.chunk_offset);
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeTensorHeader(const TensorHeader& header, std::span<std::byte, kTensorHeaderBytes> out) {
  std::ranges::fill(out, std::byte{0});
  PutLe<uint32_t>(out, 0, kTensorMagic);
  PutLe<uint16_t>(out, 4, kTensorVersion);
  PutLe<uint8_t>(out, 6, static_cast<uint8_t>(header.kind));
  PutLe<uint8_t>(out, 7,
                 static_cast<uint8_t>((header.validation ? kFlagValidation : 0) |
                                      (header.clean ? kFlagClean : 0) |
                                      (header.sampling ? kFlagSampling : 0)));
  PutLe<uint64_t>(out, 8, header.stamp.value());
  PutLe<uint64_t>(out, 16, header.epoch.value());
  PutLe<uint64_t>(out, 24, header.step.value());
  PutLe<uint32_t>(out, 32, header.replica);
  PutLe<uint32_t>(out, 36, header.microbatch.value());
  PutLe<uint32_t>(out, 40, header.edge.value());
  PutLe<uint8_t>(out, 44, static_cast<uint8_t>(header.direction));
  PutLe<uint16_t>(out, 46, header.extension_bytes);
  PutLe<uint32_t>(out, 48, header.shard);
  PutLe<uint32_t>(out, 52, header.shards);
  PutLe<uint32_t>(out, 56, header.slice);
  PutLe<uint32_t>(out, 60, header.slices);
  PutLe<uint64_t>(out, 64, header.blob_bytes);
  PutLe<uint64_t>(out, 72, header.chunk_offset);
  PutLe<uint32_t>(out, 80, header.chunk);
  PutLe<uint32_t>(out, 84, header.chunks);
  PutLe<uint32_t>(out, 88, header.number);
}

StatusOr<TensorHeader> DecodeTensorHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kTensorHeaderBytes) {
    return InvalidArgument("expected a tensor header of {} bytes, got {} bytes", kTensorHeaderBytes,
                           bytes.size());
  }
  if (const auto magic = GetLe<uint32_t>(bytes, 0); magic != kTensorMagic) {
    return InvalidArgument("expected a tensor header (magic {:08x}), got {:08x}", kTensorMagic,
                           magic);
  }
  if (const auto version = GetLe<uint16_t>(bytes, 4); version != kTensorVersion) {
    return absl::UnimplementedError(
        fmt::format("this program speaks tensor header version {}, the peer sent version {}; run "
                    "the same release on both machines",
                    kTensorVersion, version));
  }
  const auto kind = GetLe<uint8_t>(bytes, 6);
  if (kind < 1 || kind > 10 || kind == 4) {
    return InvalidArgument("tensor header: expected kind 1 to 3 or 5 to 10, got {}", kind);
  }
  const auto direction = GetLe<uint8_t>(bytes, 44);
  if (direction > 1) {
    return InvalidArgument("tensor header: expected direction 0 or 1, got {}", direction);
  }
  const auto flags = GetLe<uint8_t>(bytes, 7);
  LH_RETURN_IF_ERROR(CheckReserved(bytes, flags));
  TensorHeader header;
  header.kind = static_cast<TensorKind>(kind);
  header.validation = (flags & kFlagValidation) != 0;
  header.clean = (flags & kFlagClean) != 0;
  header.sampling = (flags & kFlagSampling) != 0;
  header.number = GetLe<uint32_t>(bytes, 88);
  header.stamp = Stamp(GetLe<uint64_t>(bytes, 8));
  header.epoch = Epoch(GetLe<uint64_t>(bytes, 16));
  header.step = Step(GetLe<uint64_t>(bytes, 24));
  header.replica = GetLe<uint32_t>(bytes, 32);
  header.microbatch = Microbatch(GetLe<uint32_t>(bytes, 36));
  header.edge = EdgeId(GetLe<uint32_t>(bytes, 40));
  header.direction = static_cast<Direction>(direction);
  header.shard = GetLe<uint32_t>(bytes, 48);
  header.shards = GetLe<uint32_t>(bytes, 52);
  header.slice = GetLe<uint32_t>(bytes, 56);
  header.slices = GetLe<uint32_t>(bytes, 60);
  header.blob_bytes = GetLe<uint64_t>(bytes, 64);
  header.chunk_offset = GetLe<uint64_t>(bytes, 72);
  header.chunk = GetLe<uint32_t>(bytes, 80);
  header.chunks = GetLe<uint32_t>(bytes, 84);
  LH_RETURN_IF_ERROR(CheckRanges(header));
  return header;
}

}  // namespace longhaul::wire
