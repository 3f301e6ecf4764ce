#include "tests/bench/transport/collective/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/file.h"
#include "base/half.h"
#include "codec/tool/npy.h"

namespace longhaul::collective::bench {
namespace {

// A prime, so that parts of tensors do not begin where the sequence does.
constexpr uint64_t kLength = 4194301;
// From a rank's beginning to the next one's.
constexpr uint64_t kStride = 1299709;
constexpr uint64_t kMostOfFile = uint64_t{1} << 28;

void FromFloat(float value, Dtype dtype, std::byte* to) {
  if (dtype == Dtype::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t half = dtype == Dtype::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(to, &half, sizeof(half));
}

std::function<float()> Source(const std::string& data) {
  const auto generator = std::make_shared<std::mt19937_64>(20240611);
  if (data == "normal") {
    return
        [generator, law = std::normal_distribution<float>()]() mutable { return law(*generator); };
  }
  if (data == "student_t") {
    return [generator, law = std::student_t_distribution<float>(3)]() mutable {
      return law(*generator);
    };
  }
  return [] { return 0.0f; };
}

Dtype From(codec::Dtype dtype) {
  if (dtype == codec::Dtype::kF32) return Dtype::kF32;
  return dtype == codec::Dtype::kF16 ? Dtype::kF16 : Dtype::kBf16;
}

StatusOr<std::vector<std::byte>> ReadNumbers(const std::string& path, Dtype dtype) {
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  auto array = codec::ParseNpy(file.bytes(), false);
  if (!array.ok()) array = codec::ParseNpy(file.bytes(), true);
  if (!array.ok()) return Annotate(array.status(), path);
  const Dtype has = From(array->dtype);
  const uint64_t count = std::min(array->shape.elements(), kMostOfFile);
  if (count == 0) {
    return absl::InvalidArgumentError(path + ": expected numbers, got an empty array");
  }
  std::vector<std::byte> numbers(count * BytesPerElement(dtype));
  const std::byte* const from = array->data.span().data();
  if (has == dtype) {
    std::memcpy(numbers.data(), from, numbers.size());
    return numbers;
  }
  for (uint64_t k = 0; k < count; ++k) {
    FromFloat(ToFloat(from + k * BytesPerElement(has), has), dtype,
              numbers.data() + k * BytesPerElement(dtype));
  }
  return numbers;
}

}  // namespace

float ToFloat(const std::byte* element, Dtype dtype) {
  if (dtype == Dtype::kF32) {
    float value = 0;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, element, sizeof(half));
  return dtype == Dtype::kF16 ? F16ToF32(half) : Bf16ToF32(half);
}

StatusOr<Numbers> Numbers::Create(const std::string& data, Dtype dtype, uint32_t ranks,
                                  uint64_t most) {
  Numbers made(dtype, ranks);
  if (data == "normal" || data == "student_t" || data == "zeros") {
    made.length_ = std::min(kLength, most);
    made.numbers_.resize(made.length_ * BytesPerElement(dtype));
    const auto next = Source(data);
    for (uint64_t k = 0; k < made.length_; ++k) {
      FromFloat(next(), dtype, made.numbers_.data() + k * BytesPerElement(dtype));
    }
  } else {
    LH_ASSIGN_OR_RETURN(made.numbers_, ReadNumbers(data, dtype));
    made.length_ = made.numbers_.size() / BytesPerElement(dtype);
  }
  made.SumUp();
  return made;
}

uint64_t Numbers::At(uint32_t rank, uint64_t element) const {
  return (element + rank * kStride) % length_;
}

void Numbers::SumUp() {
  const size_t bytes = BytesPerElement(dtype_);
  std::vector<float> sums(length_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    uint64_t at = At(rank, 0);
    for (uint64_t k = 0; k < length_; ++k) {
      const float value = ToFloat(numbers_.data() + at * bytes, dtype_);
      sums[k] = rank == 0 ? value : sums[k] + value;
      if (++at == length_) at = 0;
    }
  }
  sums_.resize(numbers_.size());
  for (uint64_t k = 0; k < length_; ++k) FromFloat(sums[k], dtype_, sums_.data() + k * bytes);
}

void Numbers::Tile(const std::vector<std::byte>& from, uint64_t first,
                   std::span<std::byte> to) const {
  size_t at = first % length_ * BytesPerElement(dtype_);
  while (!to.empty()) {
    const size_t piece = std::min(to.size(), from.size() - at);
    std::memcpy(to.data(), from.data() + at, piece);
    to = to.subspan(piece);
    at = 0;
  }
}

void Numbers::Inputs(uint32_t rank, uint64_t first, std::span<std::byte> to) const {
  Tile(numbers_, At(rank, first), to);
}
void Numbers::Sums(uint64_t first, std::span<std::byte> to) const {
  Tile(sums_, first, to);
}

float Numbers::Magnitude(uint64_t element) const {
  float sum = 0;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    sum += std::abs(ToFloat(numbers_.data() + At(rank, element) * BytesPerElement(dtype_), dtype_));
  }
  return sum;
}

}  // namespace longhaul::collective::bench
