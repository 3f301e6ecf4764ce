#include "transport/replicas/sparse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codec/convert.h"
#include "codec/tagc/select.h"
#include "codec/tagc/sketch.h"

namespace longhaul::replicas {
namespace {

namespace tagc = codec::tagc;

// A sum of all replicas' numbers stays below 2^30.
constexpr int kNumberBits = 30;

// Numbers travel as integers: their sum is the same in any order, so all replicas agree to the bit.
// The exponent is the largest with which the sum of so many numbers of that size fits.
int32_t ExponentFor(uint32_t largest, uint32_t replicas) {
  if (largest == 0) return 0;
  const int room = kNumberBits - 1 - static_cast<int>(std::bit_width(replicas - 1));
  return std::clamp(room - codec::FloorLog2(largest), -kMostExponent, kMostExponent);
}
int32_t ToFixed(float value, int32_t exponent) {
  return static_cast<int32_t>(std::llrint(std::ldexp(double{value}, exponent)));
}
double FromFixed(uint32_t number, int32_t exponent) {
  return std::ldexp(static_cast<double>(static_cast<int32_t>(number)), -exponent);
}

// The bitmap without these positions.
std::vector<uint64_t> Without(std::span<const uint64_t> bitmap,
                              std::span<const uint32_t> positions) {
  std::vector<uint64_t> rest(bitmap.begin(), bitmap.end());
  for (const uint32_t position : positions) rest[position / 64] &= ~(uint64_t{1} << position % 64);
  return rest;
}

// A piece's words of a shard's bitmap.
template <class Word>
std::span<Word> WordsOf(const Piece& piece, std::span<Word> of_shard) {
  return of_shard.subspan(piece.at / 64, tagc::BitmapWords(piece.count));
}
std::span<uint64_t> WordsOf(const Piece& piece, std::vector<uint64_t>& of_shard) {
  return WordsOf(piece, std::span(of_shard));
}

}  // namespace

uint64_t Kept(const Piece& piece, double keep) {
  const double wanted = std::ceil(static_cast<double>(piece.count) * keep);
  return std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, piece.count);
}

StatusOr<IndexPayload> SparseContribution::Select(const Shard& shard, double keep,
                                                  std::span<const ParameterMemory> memory,
                                                  const Residuals& residuals,
                                                  Arithmetic* arithmetic) {
  IndexPayload index;
  index.bitmap.resize(tagc::BitmapWords(shard.positions));
  values_.clear();
  nonfinite_ = false;
  for (const Piece& piece : shard.sparse) {
    LH_ASSIGN_OR_RETURN(const bool finite,
                        arithmetic->AllFinite(Part(memory[piece.parameter].gradient, piece)));
    index.nonfinite |= !finite;
  }
  bitmap_ = index.bitmap;
  nonfinite_ = index.nonfinite;
  // The residuals stay as they are: a step with such a gradient is skipped by all.
  if (index.nonfinite) return index;
  for (const Piece& piece : shard.sparse) {
    const std::span<float> residual = Part(residuals[piece.parameter].span, piece);
    const std::span<uint64_t> words = WordsOf(piece, bitmap_);
    LH_RETURN_IF_ERROR(arithmetic->AddAndSelect(Part(memory[piece.parameter].gradient, piece),
                                                residual, Kept(piece, keep), words));
    LH_ASSIGN_OR_RETURN(const std::vector<float> kept, arithmetic->Get(words, residual));
    for (const float value : kept) {
      index.largest = std::max(index.largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
    }
    values_.insert(values_.end(), kept.begin(), kept.end());
  }
  index.bitmap = bitmap_;
  return index;
}

StatusOr<std::vector<std::byte>> SparseContribution::Answer(const Shard& shard,
                                                            std::span<const std::byte> payload,
                                                            const Residuals& residuals,
                                                            Arithmetic* arithmetic) {
  LH_ASSIGN_OR_RETURN(const UnionPayload all, ParseUnion(payload, shard.positions, bitmap_));
  asked_bytes_ = 4 * all.left_out.size();
  if (all.nonfinite) return std::vector<std::byte>();
  const float most = std::ldexp(1.0f, kNumberBits - all.exponent);
  for (const float value : values_) {
    if (std::fabs(value) > most) {
      return InvalidArgument(
          "union: exponent {} is too high for {}, which this replica's index named", all.exponent,
          value);
    }
  }
  const tagc::Sketch sketch{all.rows, all.seed};
  std::vector<uint32_t> cells(sketch.cells()), left_out(all.left_out.size()), numbers;
  numbers.reserve(values_.size());
  std::vector<float> lost;
  lost.reserve(values_.size());
  size_t k = 0, skipped = 0;
  tagc::ForEach(bitmap_, [&](uint64_t position) {
    const float value = values_[k++];
    const int32_t fixed = ToFixed(value, all.exponent);
    const auto number = static_cast<uint32_t>(fixed);
    // What rounding to an integer loses stays in the residual for the next step.
    lost.push_back(static_cast<float>(double{value} - FromFixed(number, all.exponent)));
    while (skipped < left_out.size() && all.left_out[skipped] < position) ++skipped;
    if (skipped < left_out.size() && all.left_out[skipped] == position) {
      left_out[skipped] = number;
    } else {
      numbers.push_back(number);
    }
  });
  std::span<const float> rest(lost);
  for (const Piece& piece : shard.sparse) {
    const std::span<const uint64_t> words = WordsOf<const uint64_t>(piece, bitmap_);
    const uint64_t kept = tagc::Count(words);
    LH_RETURN_IF_ERROR(
        arithmetic->Put(words, rest.first(kept), Part(residuals[piece.parameter].span, piece)));
    rest = rest.subspan(kept);
  }
  tagc::AddToSketch(sketch, Without(bitmap_, all.left_out), numbers, cells);
  std::vector<std::byte> out(4 * (cells.size() + left_out.size()));
  PutWords(cells, out, 0);
  PutWords(left_out, out, 4 * cells.size());
  return out;
}

Status SparseContribution::KeepOwn(const Shard& shard, const Residuals& residuals,
                                   Arithmetic* arithmetic) {
  for (const Piece& piece : shard.sparse) {
    const std::span<const uint64_t> words = WordsOf<const uint64_t>(piece, bitmap_);
    LH_RETURN_IF_ERROR(arithmetic->Put(words, std::vector<float>(tagc::Count(words)),
                                       Part(residuals[piece.parameter].span, piece)));
  }
  return absl::OkStatus();
}

void SparseSum::Clear() {
  indices_.assign(replicas_, std::nullopt);
  sketched_.assign(replicas_, false);
  indices_missing_ = sketches_missing_ = replicas_ - 1;
  planned_ = false;
  union_ = {};
  cells_.clear();
  left_out_.clear();
  counts_ = {};
}

Status SparseSum::AddIndex(uint32_t replica, std::span<const std::byte> payload, const Shard& shard,
                           double keep) {
  if (planned_ || indices_[replica]) {
    return absl::InvalidArgumentError("index: expected one in a step, got another");
  }
  LH_ASSIGN_OR_RETURN(IndexPayload index, ParseIndex(payload, shard.positions));
  for (const Piece& piece : shard.sparse) {
    const std::span<uint64_t> words = WordsOf(piece, index.bitmap);
    const uint64_t kept = tagc::Count(words);
    // Bits behind the last element would be positions that no parameter has.
    const uint64_t expected = index.nonfinite ? 0 : Kept(piece, keep);
    if (kept != expected || (piece.count % 64 != 0 && words.back() >> piece.count % 64 != 0)) {
      return InvalidArgument("index: expected {} positions in a piece of {} elements, got {}",
                             expected, piece.count, kept);
    }
  }
  indices_[replica] = std::move(index);
  --indices_missing_;
  return absl::OkStatus();
}

void SparseSum::Plan(uint32_t seed) {
  planned_ = true;
  uint32_t largest = 0;
  for (const auto& index : indices_) {
    if (!index) continue;
    union_.nonfinite |= index->nonfinite;
    largest = std::max(largest, index->largest);
    union_.bitmap.resize(index->bitmap.size());
    for (size_t k = 0; k < index->bitmap.size(); ++k) union_.bitmap[k] |= index->bitmap[k];
  }
  if (union_.nonfinite) return;
  tagc::SketchPlan plan = tagc::PlanSketch(union_.bitmap, seed);
  union_.exponent = ExponentFor(largest, replicas_);
  union_.rows = plan.sketch.rows;
  union_.seed = plan.sketch.seed;
  union_.left_out = std::move(plan.left_out);
  cells_.assign(plan.sketch.cells(), 0);
  left_out_.assign(union_.left_out.size(), 0);
  counts_ = {tagc::Count(union_.bitmap), left_out_.size(), cells_.size()};
}

UnionPayload SparseSum::UnionFor(uint32_t replica) const {
  UnionPayload all = union_;
  all.is_receivers = !all.nonfinite && all.bitmap == indices_[replica]->bitmap;
  // A replica that has kept just these positions knows the bitmap; it is not sent to it.
  if (all.nonfinite || all.is_receivers) all.bitmap.clear();
  return all;
}

bool SparseSum::IsComplete() const {
  return planned_ && (union_.nonfinite || sketches_missing_ == 0);
}

Status SparseSum::AddSketch(uint32_t replica, std::span<const std::byte> payload) {
  if (!planned_ || union_.nonfinite || sketched_[replica]) {
    return absl::InvalidArgumentError("sketch: expected one, as an answer to this replica's union");
  }
  const uint64_t expected = 4 * (cells_.size() + left_out_.size());
  if (payload.size() != expected) {
    return InvalidArgument("sketch: expected {} bytes, got {}", expected, payload.size());
  }
  const std::vector<uint32_t> words = GetWords(payload, 0, expected / 4);
  for (size_t k = 0; k < cells_.size(); ++k) cells_[k] += words[k];
  for (size_t k = 0; k < left_out_.size(); ++k) left_out_[k] += words[cells_.size() + k];
  sketched_[replica] = true;
  --sketches_missing_;
  return absl::OkStatus();
}

// Returns the sums of the other replicas' numbers at the union's positions, in order.
StatusOr<std::vector<uint32_t>> SparseSum::Recover() {
  if (union_.bitmap.empty()) return std::vector<uint32_t>();
  const std::vector<uint64_t> in_sketch = Without(union_.bitmap, union_.left_out);
  std::vector<uint32_t> peeled(tagc::Count(in_sketch)), all;
  if (!tagc::Peel({union_.rows, union_.seed}, in_sketch, cells_, peeled)) {
    return absl::InvalidArgumentError(
        "sketches: their sum has numbers at positions that no index named; a replica's sketch is "
        "not of its index");
  }
  all.reserve(peeled.size() + left_out_.size());
  size_t next = 0, skipped = 0;
  tagc::ForEach(union_.bitmap, [&](uint64_t position) {
    const bool left = skipped < left_out_.size() && union_.left_out[skipped] == position;
    all.push_back(left ? left_out_[skipped++] : peeled[next++]);
  });
  return all;
}

Status SparseSum::Reduce(std::span<const OwnPiece> own, std::span<const ParameterMemory> memory,
                         const SparseContribution* selected, Arithmetic* arithmetic) {
  if (union_.nonfinite || (selected != nullptr && selected->nonfinite())) {
    for (const OwnPiece& to : own) {
      LH_RETURN_IF_ERROR(arithmetic->Fill(std::numeric_limits<float>::quiet_NaN(), to.gradient));
    }
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers, Recover());
  size_t next = 0, next_selected = 0;
  for (const OwnPiece& to : own) {
    const auto gradient = Part(memory[to.piece.parameter].gradient, to.piece);
    // Without other replicas there is no union.
    std::vector<uint64_t> of_union(tagc::BitmapWords(to.piece.count)), of_selected;
    if (!union_.bitmap.empty()) {
      std::ranges::copy(WordsOf(to.piece, union_.bitmap), of_union.begin());
    }
    // Positions whose mean is more than the owner's gradient, or than 0.
    std::vector<uint64_t> words = of_union;
    std::vector<float> values;
    if (selected == nullptr) {
      LH_ASSIGN_OR_RETURN(values, arithmetic->Get(words, gradient));
      LH_RETURN_IF_ERROR(arithmetic->Divide(gradient, static_cast<float>(replicas_), to.gradient));
    } else {
      const auto some = WordsOf(to.piece, selected->bitmap());
      of_selected.assign(some.begin(), some.end());
      for (size_t k = 0; k < words.size(); ++k) words[k] |= of_selected[k];
      values.resize(tagc::Count(words));
      LH_RETURN_IF_ERROR(arithmetic->Fill(0, to.gradient));
    }
    size_t k = 0;
    tagc::ForEach(words, [&](uint64_t element) {
      double sum = values[k];
      if (selected != nullptr && tagc::Has(of_selected, element)) {
        sum = selected->values()[next_selected++];
      }
      if (tagc::Has(of_union, element)) sum += FromFixed(numbers[next++], union_.exponent);
      values[k++] = static_cast<float>(sum / replicas_);
    });
    LH_RETURN_IF_ERROR(arithmetic->Put(words, values, to.gradient));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::replicas
