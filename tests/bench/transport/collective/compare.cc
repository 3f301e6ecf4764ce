#include "tests/bench/transport/collective/compare.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/hash.h"

namespace longhaul::collective::bench {
namespace {

struct Piece {
  std::span<const std::byte> got, expected;
  uint64_t first = 0;  // element of the sequence
  bool sums = false;
};

// Relative rounding error of one addition to the nearest.
double Rounding(Dtype dtype) {
  if (dtype == Dtype::kF32) return 0x1p-24;
  return dtype == Dtype::kF16 ? 0x1p-11 : 0x1p-9;
}

class Comparer {
 public:
  Comparer(const Numbers& numbers, Dtype dtype, uint32_t ranks, Promise promise)
      : numbers_(numbers),
        dtype_(dtype),
        promise_(promise),
        // Twice, for numbers below the normal ones and what rounding adds to magnitudes.
        bound_(2 * ranks * Rounding(dtype)) {}

  void Look(const Piece& piece) {
    const size_t element = BytesPerElement(dtype_);
    const uint64_t count = piece.got.size() / element;
    result_.elements += count;
    const std::array<uint64_t, 2> sums = {result_.checksum, Checksum64(piece.got)};
    result_.checksum = Checksum64(std::as_bytes(std::span(sums)));
    if (std::memcmp(piece.got.data(), piece.expected.data(), piece.got.size()) == 0 &&
        promise_ == Promise::kBits) {
      return;
    }
    for (uint64_t k = 0; k < count; ++k) LookAt(piece, k, element);
  }

  Comparison Finish() {
    const bool lost = result_.error_squares > kLossyLimit * kLossyLimit * result_.squares;
    if (promise_ == Promise::kLossy && lost) result_.wrong = result_.differ;
    return result_;
  }

 private:
  void LookAt(const Piece& piece, uint64_t k, size_t element) {
    const std::byte* const got_at = piece.got.data() + k * element;
    const std::byte* const expected_at = piece.expected.data() + k * element;
    const double got = ToFloat(got_at, dtype_), expected = ToFloat(expected_at, dtype_);
    if (std::isfinite(expected)) result_.squares += expected * expected;
    if (std::memcmp(got_at, expected_at, element) == 0) return;
    if (piece.sums && std::isnan(got) && std::isnan(expected)) return;
    ++result_.differ;
    const double off = got - expected;
    if (std::isfinite(off)) result_.error_squares += off * off;
    switch (promise_) {
      case Promise::kBits:
        ++result_.wrong;
        break;
      case Promise::kRounded:
        if (!(std::abs(off) <= bound_ * numbers_.Magnitude(piece.first + k))) ++result_.wrong;
        break;
      case Promise::kLossy:
        if (!std::isfinite(got) && std::isfinite(expected)) ++result_.wrong;
        break;
    }
  }

  const Numbers& numbers_;
  const Dtype dtype_;
  const Promise promise_;
  const double bound_;
  Comparison result_;
};

}  // namespace

Promise PromiseOf(const Variant& variant, Op op, const Options& options) {
  if (options.ranks == 1) return Promise::kBits;
  const bool sums = op == Op::kAllReduce || op == Op::kReduceScatter;
  for (const Variant& one : variant.with) {
    if (PromiseOf(one, op, options) == Promise::kLossy) return Promise::kLossy;
  }
  if (variant.kind == Variant::Kind::kTaco && op != Op::kAllToAll) return Promise::kLossy;
  if (variant.kind == Variant::Kind::kZip && options.dtype == Dtype::kBf16) return Promise::kBits;
  if (variant.kind == Variant::Kind::kExact) return Promise::kBits;
  // NCCL chooses the order of its sums, and rounds on the way.
  return sums && options.cuda ? Promise::kRounded : Promise::kBits;
}

StatusOr<Comparison> Compare(Place* place, const std::byte* result, const Part& part,
                             const Numbers& numbers, Dtype dtype, uint32_t ranks, Promise promise) {
  Comparer comparer(numbers, dtype, ranks, promise);
  const size_t element = BytesPerElement(dtype);
  std::vector<std::byte> expected;
  for (const Part::Segment& segment : part.expected) {
    const auto look = [&](size_t at, std::span<const std::byte> got) {
      expected.resize(got.size());
      const uint64_t first = segment.first + at / element;
      if (segment.rank.has_value()) {
        numbers.Inputs(*segment.rank, first, expected);
      } else {
        numbers.Sums(first, expected);
      }
      comparer.Look({got, expected, first, !segment.rank.has_value()});
    };
    LH_RETURN_IF_ERROR(place->Read(result + segment.at * element, segment.count * element, look));
  }
  return comparer.Finish();
}

}  // namespace longhaul::collective::bench
