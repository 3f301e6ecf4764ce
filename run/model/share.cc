#include "run/model/share.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/words.h"

namespace longhaul::model {
namespace {

// Number of units in one of the stacked matrices.
uint32_t UnitsOf(const ModelSpec& spec, const Split& split, uint32_t extent) {
  switch (split.unit) {
    case Unit::kHead:
      return spec.heads;
    case Unit::kKvHead:
      return spec.kv_heads;
    case Unit::kChannel:
    case Unit::kToken:
      break;
  }
  return extent;
}

std::string_view NameOf(Unit unit) {
  return WordOf(unit, {"channels", "heads", "heads of keys and values", "rows of the vocabulary"});
}

StatusOr<Share> ShareOfExpert(const ModelSpec& spec, const Parameter& parameter, uint32_t rank,
                              const Ranks& ranks) {
  if (ranks.count % ranks.experts != 0 || spec.experts % ranks.experts != 0) {
    return InvalidArgument(
        "{}: expected a number of parts that divides both the {} experts of a block and the {} "
        "ranks of the group, got {}; choose another number",
        parameter.name, spec.experts, ranks.count, ranks.experts);
  }
  const uint32_t holders = ranks.count / ranks.experts, each = spec.experts / ranks.experts;
  Share share{.ranges = {}, .holders = holders};
  if (parameter.split.expert / each == rank / holders) {
    share.ranges.push_back({0, parameter.shape.rows});
  }
  return share;
}

}  // namespace

StatusOr<Share> ShareOf(const ModelSpec& spec, const Parameter& parameter, uint32_t rank,
                        const Ranks& of_group) {
  const uint32_t ranks = of_group.count;
  LH_CHECK(rank < ranks, "rank {} of {}", rank, ranks);
  const Split& split = parameter.split;
  if (split.along == Along::kNothing) return Share{{{0, parameter.shape.rows}}, ranks};
  if (split.along == Along::kExperts) return ShareOfExpert(spec, parameter, rank, of_group);

  const uint32_t whole =
      split.along == Along::kRows ? parameter.shape.rows : parameter.shape.columns;
  const uint32_t extent = whole / split.stacked;
  const uint32_t units = UnitsOf(spec, split, extent);
  const uint32_t width = extent / units;  // of a unit
  LH_CHECK(uint64_t{width} * units * split.stacked == whole, "{}: {} in {} times {} units",
           parameter.name, whole, split.stacked, units);

  const bool repeated = split.unit == Unit::kKvHead && ranks > units;
  const bool even = repeated ? ranks % units == 0 : units % ranks == 0;
  if (units < ranks && !repeated) {
    return InvalidArgument(
        "{}: expected at most {} ranks, as it has so many {}, got {}; choose a smaller "
        "group",
        parameter.name, units, NameOf(split.unit), ranks);
  }
  if (!even && split.unit != Unit::kToken) {
    return InvalidArgument(
        "{}: expected a number of ranks that {} {} {}, got {}; choose another size of "
        "the group",
        parameter.name, repeated ? "is a multiple of its" : "divides its", units,
        NameOf(split.unit), ranks);
  }
  Share share{.ranges = {}, .holders = repeated ? ranks / units : 1};
  const auto unit_at = [&](uint32_t cut) {
    return static_cast<uint32_t>(uint64_t{units} * cut / ranks);
  };
  const uint32_t first = unit_at(rank);
  const uint32_t end = repeated ? first + 1 : unit_at(rank + 1);
  for (uint32_t matrix = 0; matrix < split.stacked; ++matrix) {
    const uint32_t begin = matrix * extent;
    share.ranges.push_back({begin + first * width, begin + end * width});
  }
  return share;
}

std::vector<uint32_t> PartsOfExperts(const ModelSpec& spec, uint32_t ranks) {
  std::vector<uint32_t> parts = {1};
  if (!spec.has_experts()) return parts;
  for (uint32_t number = 2; number <= std::min(ranks, spec.experts); ++number) {
    if (ranks % number == 0 && spec.experts % number == 0) parts.push_back(number);
  }
  return parts;
}

std::vector<Stretch> StretchesOf(const Parameter& parameter, const Share& share) {
  const uint64_t rows = parameter.shape.rows, columns = std::max(parameter.shape.columns, 1u);
  std::vector<Stretch> stretches;
  if (parameter.split.along == Along::kColumns) {
    for (uint64_t row = 0; row < rows; ++row) {
      for (const Range& range : share.ranges) {
        stretches.push_back({row * columns + range.begin, range.end - range.begin});
      }
    }
    return stretches;
  }
  for (const Range& range : share.ranges) {
    stretches.push_back({range.begin * columns, (range.end - range.begin) * columns});
  }
  return stretches;
}

}  // namespace longhaul::model
