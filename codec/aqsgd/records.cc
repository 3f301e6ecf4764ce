#include "codec/aqsgd/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "codec/tile.h"

namespace longhaul::codec::aqsgd {
namespace {

uint64_t LoadU64(const std::byte* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

Status Messages::Check(const Shape& shape) const {
  if (ids_.empty()) return absl::OkStatus();
  if (ids_.size() != shape.samples) {
    return InvalidArgument("expected the ids of {} samples or none; {} came", shape.samples,
                           ids_.size());
  }
  if (store_ == nullptr) {
    return absl::InvalidArgumentError(
        "aqsgd needs Context.messages where the samples have ids; there are none");
  }
  if (store_->record_bytes() != RecordBytes(shape)) {
    return InvalidArgument("samples of {} x {} need records of {} bytes; the store's have {}",
                           shape.tokens, shape.channels, RecordBytes(shape),
                           store_->record_bytes());
  }
  for (const uint64_t id : ids_) {
    if (id < store_->samples()) continue;
    return InvalidArgument("expected samples below {}; {} came", store_->samples(), id);
  }
  return absl::OkStatus();
}

Entry Messages::EntryOf(uint64_t index) const {
  if (!remembers()) return {};
  const std::span<const std::byte> record = Read(index);
  // 0 stands for "none".
  return {ids_[index], record.empty() ? 0 : std::max<uint64_t>(Checksum64(record), 1)};
}

StatusOr<std::byte*> Messages::Write(uint64_t index) const {
  const auto later = ids_.subspan(index + 1);
  if (std::find(later.begin(), later.end(), ids_[index]) != later.end()) {
    return static_cast<std::byte*>(nullptr);
  }
  LH_ASSIGN_OR_RETURN(const std::span<std::byte> record, store_->Write(step_, ids_[index]));
  return record.data();
}

StatusOr<uint64_t> CheckSize(std::span<const std::byte> front, uint64_t payload_bytes,
                             const Shape& shape, const Params& params) {
  const Layout layout = MakeLayout(shape, params);
  if (front.size() < layout.variable) {
    return InvalidArgument("a payload of {} with this shape has at least {} bytes; {} came",
                           CodecString(params), MinPayloadBytes(shape, params), payload_bytes);
  }
  uint64_t differences = 0;
  for (uint64_t index = 0; index < shape.samples; ++index) {
    differences += KindIn(front, layout, index) == Kind::kDifference ? 1 : 0;
  }
  if (const uint64_t bytes = PayloadBytes(shape, params, differences); payload_bytes != bytes) {
    return InvalidArgument(
        "a payload of {} with this shape and {} differences has {} bytes; {} came",
        CodecString(params), differences, bytes, payload_bytes);
  }
  return differences;
}

Status CheckSample(std::span<const std::byte> front, uint64_t index, const Entry& mine,
                   bool remembers, const Layout& layout) {
  const uint64_t id = LoadU64(&front[layout.samples + 8 * index]);
  const uint64_t check = LoadU64(&front[layout.checks + 8 * index]);
  const Kind kind = KindIn(front, layout, index);
  const int exponent = static_cast<int16_t>(LoadU16(&front[layout.exponents + 2 * index]));
  if (id != mine.id) {
    return InvalidArgument("expected sample {} at place {} of the tensor; the blob has {}", mine.id,
                           index, id);
  }
  if (check != mine.check) {
    return absl::InvalidArgumentError(
        mine.check == 0
            ? fmt::format("the sender has a message of sample {}, this side has none", id)
        : check == 0 ? fmt::format("this side has a message of sample {}, the sender has none", id)
                     : fmt::format("the two sides' messages of sample {} differ", id));
  }
  if (!KindPossible(kind, remembers, check != 0)) {
    return InvalidArgument("sample {} of the blob is of kind {}, which it cannot be", index,
                           static_cast<int>(kind));
  }
  if (!ExponentPossible(kind, exponent)) {
    return absl::InvalidArgumentError("a sample's exponent in the blob is out of range");
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::aqsgd
