#include "codec/predict/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "codec/tile.h"

namespace longhaul::codec::predict {
namespace {

uint64_t Tokens(const Shape& shape) {
  return uint64_t{shape.samples} * shape.tokens;
}

}  // namespace

bool Possible(const Params& params) {
  return params.log2_pairs <= kMostLog2Pairs && params.prior <= kMostPrior &&
         std::isfinite(params.rate) && !std::signbit(params.rate) && params.rate <= 1;
}

std::string CodecString(const Params& params) {
  return fmt::format("predict:pairs={},rate={},prior={}", params.pairs(), params.rate,
                     params.prior);
}

CodecParameters ToHeader(const Params& params, CodecId other) {
  CodecParameters parameters{};
  parameters[0] = static_cast<std::byte>(params.log2_pairs);
  parameters[1] = static_cast<std::byte>(other);
  StoreU16(static_cast<uint16_t>(params.prior), &parameters[2]);
  std::memcpy(&parameters[4], &params.rate, sizeof(params.rate));
  return parameters;
}

CodecId OtherCodec(const CodecParameters& parameters) {
  return static_cast<CodecId>(parameters[1]);
}

StatusOr<Params> FromHeader(const CodecParameters& parameters) {
  Params params;
  params.log2_pairs = static_cast<uint32_t>(parameters[0]);
  params.prior = LoadU16(&parameters[2]);
  std::memcpy(&params.rate, &parameters[4], sizeof(params.rate));
  if (!Possible(params) || ToHeader(params, OtherCodec(parameters)) != parameters) {
    return absl::InvalidArgumentError("the blob's parameters of predict are out of range");
  }
  return params;
}

uint64_t OtherOffset(const Shape& shape, uint32_t id_bytes) {
  return kFrontBytes + AlignSection(Tokens(shape) * id_bytes);
}

void WriteFront(const Front& front, std::byte* payload) {
  std::memset(payload, 0, kFrontBytes);
  std::memcpy(payload, &front.check, sizeof(front.check));
  payload[8] = static_cast<std::byte>(front.kind);
  payload[9] = static_cast<std::byte>(front.id_bytes);
}

StatusOr<Front> ReadFront(std::span<const std::byte> payload, const Shape& shape) {
  if (payload.size() < kFrontBytes + kBlobHeaderBytes) {
    return InvalidArgument("expected a payload of predict of at least {} bytes, got {}",
                           kFrontBytes + kBlobHeaderBytes, payload.size());
  }
  Front front;
  std::memcpy(&front.check, payload.data(), sizeof(front.check));
  front.kind = static_cast<Kind>(payload[8]);
  front.id_bytes = static_cast<uint32_t>(payload[9]);
  std::array<std::byte, kFrontBytes> again;
  WriteFront(front, again.data());
  const bool has_ids = front.kind != Kind::kPlain;
  const bool possible =
      front.kind <= Kind::kLearned && (has_ids ? front.id_bytes == 2 || front.id_bytes == 4
                                               : front.id_bytes == 0 && front.check == 0);
  if (!possible || std::memcmp(again.data(), payload.data(), kFrontBytes) != 0) {
    return InvalidArgument(
        "a payload of predict of kind {} with ids of {} bytes is none that an "
        "encoder writes",
        static_cast<int>(front.kind), front.id_bytes);
  }
  const uint64_t other = OtherOffset(shape, front.id_bytes);
  if (payload.size() < other + kBlobHeaderBytes) {
    return InvalidArgument("expected a payload of predict with {} ids of at least {} bytes, got {}",
                           Tokens(shape), other + kBlobHeaderBytes, payload.size());
  }
  for (uint64_t k = kFrontBytes + Tokens(shape) * front.id_bytes; k < other; ++k) {
    if (payload[k] != std::byte{0})
      return absl::InvalidArgumentError("the padding of a blob's ids is not zero");
  }
  return front;
}

StatusOr<BlobHeader> ReadOther(std::span<const std::byte> other) {
  StatusOr<BlobHeader> header = ParseBlobHeader(other);
  if (header.ok()) return header;
  // Its version is this program's where that of the blob around it is.
  return InvalidArgument("the blob within a blob of predict: {}", Message(header.status()));
}

void WriteIds(std::span<const uint32_t> ids, uint32_t id_bytes, std::byte* section) {
  for (size_t k = 0; k < ids.size(); ++k) {
    std::memcpy(section + k * id_bytes, &ids[k], id_bytes);
  }
  const uint64_t bytes = ids.size() * id_bytes, padding = AlignSection(bytes) - bytes;
  // An empty tensor's section may be null, which memset may not get.
  if (padding > 0) std::memset(section + bytes, 0, padding);
}

uint32_t IdAt(const std::byte* section, uint32_t id_bytes, uint64_t index) {
  uint32_t id = 0;
  std::memcpy(&id, section + index * id_bytes, id_bytes);
  return id;
}

std::vector<uint32_t> IdsOf(std::span<const std::byte> blob) {
  std::vector<uint32_t> ids;
  const StatusOr<BlobHeader> header = ParseBlobHeader(blob);
  if (!header.ok() || header->codec != kId || header->payload_bytes == 0) return ids;
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  const StatusOr<Front> front = ReadFront(payload, header->shape);
  if (!front.ok() || front->kind == Kind::kPlain) return ids;
  ids.resize(Tokens(header->shape));
  for (size_t k = 0; k < ids.size(); ++k) {
    ids[k] = IdAt(&payload[kFrontBytes], front->id_bytes, k);
  }
  return ids;
}

}  // namespace longhaul::codec::predict
