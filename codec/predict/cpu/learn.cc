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
      Accumulate(lesson.decoded + token * channels,
                 of_pairs ? tables->MeansOf(lesson.ids[token]) : nullptr, end == first, channels,
                 sum);
    }
    const auto occurrences = static_cast<uint32_t>(end - first);
    const uint64_t place = row + (of_pairs ? uint64_t{tables->shape().vocabulary} : 0);
    uint32_t& seen = tables->counts()[place];
    seen = AddCount(seen, occurrences);
    const float rate =
        Rate(occurrences, seen, of_pairs ? lesson.params.prior : 0, lesson.params.rate);
    total += RowWeight(row, of_pairs) * Learn(sum, 1.0f / static_cast<float>(occurrences), rate,
                                              channels, tables->MeansOf(place));
    first = end;
  }
  return total;
}

}  // namespace

uint32_t PairOf(std::span<const uint32_t> ids, const Shape& shape, const Params& params,
                uint64_t index) {
  return PairRow(index % shape.tokens == 0 ? 0 : ids[index - 1], ids[index], params.log2_pairs);
}

// Rows of tokens learn first: those of pairs need the new ones.
void Learn(const Lesson& lesson, std::span<uint64_t> keys, float* sum, Tables* tables) {
  uint32_t total = LearnTable(lesson, false, keys, sum, tables);
  if (lesson.params.log2_pairs > 0) total += LearnTable(lesson, true, keys, sum, tables);
  tables->set_check(NextCheck(tables->check(), total));
}

}  // namespace longhaul::codec::predict::cpu
