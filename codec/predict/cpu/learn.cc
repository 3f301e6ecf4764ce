#include "codec/predict/cpu/learn.h"

#include <algorithm>

#include "codec/predict/cpu/kernels.h"

namespace longhaul::codec::predict::cpu {
namespace {

// What one table learns. Returns its part of the sum.
uint32_t LearnTable(const Lesson& lesson, bool of_pairs, std::span<uint64_t> keys, float* sum,
                    Tables* tables) {
  // Sorted by row, then in the order of tokens.
  size_t count = 0;
  for (uint64_t k = 0; k < lesson.ids.size(); ++k) {
    if (lesson.teaches[k] == 0) continue;
    const uint32_t row =
        of_pairs ? PairOf(lesson.ids, lesson.shape, lesson.params, k) : lesson.ids[k];
    keys[count++] = (uint64_t{row} << 32) | k;
  }
  std::sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count));
  const size_t channels = lesson.shape.channels;
  uint32_t total = 0;
  for (size_t first = 0; first < count;) {
    const auto row = static_cast<uint32_t>(keys[first] >> 32);
    size_t end = first;
    for (; end < count && keys[end] >> 32 == row; ++end) {
      const auto token = static_cast<uint32_t>(keys[end]);
      const PredictingRows known{.mean = tables->mean(),
                                 .token = of_pairs ? tables->Row(lesson.ids[token]) : nullptr};
      Accumulate(lesson.decoded + token * channels, known, end == first, channels, sum);
    }
    const auto occurrences = static_cast<uint32_t>(end - first);
    const uint64_t place = row + (of_pairs ? uint64_t{tables->shape().vocabulary} : 0);
    uint32_t& seen = tables->counts()[place];
    seen = AddCount(seen, occurrences);
    const float rate =
        Rate(occurrences, seen, of_pairs ? lesson.params.prior : 0, lesson.params.rate);
    total += RowWeight(place) *
             Learn(sum, 1.0f / static_cast<float>(occurrences), rate, channels, tables->Row(place));
    first = end;
  }
  return total;
}

// What the mean over all tokens learns, like LearnTable.
uint32_t LearnMeanOfAll(const Lesson& lesson, float* sums, Tables* tables) {
  const size_t channels = lesson.shape.channels;
  std::fill_n(sums, SumsFor(lesson.shape.channels), 0.0f);
  uint32_t occurrences = 0;
  for (uint64_t k = 0; k < lesson.ids.size(); ++k) {
    if (lesson.teaches[k] == 0) continue;
    Add(lesson.decoded + k * channels, channels, sums + k % kMeanParts * channels);
    ++occurrences;
  }
  if (occurrences == 0) return 0;
  for (uint32_t part = 1; part < kMeanParts; ++part) Add(sums + part * channels, channels, sums);
  const uint64_t place = tables->shape().rows();
  uint32_t& seen = tables->counts()[place];
  seen = AddCount(seen, occurrences);
  return RowWeight(place) * LearnMean(sums, 1.0f / static_cast<float>(occurrences),
                                      Rate(occurrences, seen, 0, lesson.params.rate), channels,
                                      tables->mean());
}

}  // namespace

uint32_t PairOf(std::span<const uint32_t> ids, const Shape& shape, const Params& params,
                uint64_t index) {
  return PairRow(index % shape.tokens == 0 ? 0 : ids[index - 1], ids[index], params.log2_pairs);
}

// Rows of pairs need the new rows of tokens. The mean changes last, because all rows learn against
// the old one.
void Learn(const Lesson& lesson, std::span<uint64_t> keys, float* sums, Tables* tables) {
  uint32_t total = 0;
  if (tables->counts().back() > 0) {
    total += LearnTable(lesson, false, keys, sums, tables);
    if (lesson.params.log2_pairs > 0) total += LearnTable(lesson, true, keys, sums, tables);
  }
  total += LearnMeanOfAll(lesson, sums, tables);
  tables->set_check(NextCheck(tables->check(), total));
}

}  // namespace longhaul::codec::predict::cpu
