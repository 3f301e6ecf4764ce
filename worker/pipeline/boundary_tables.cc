#include "worker/pipeline/boundary_tables.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "base/half.h"
#include "codec/predict/arithmetic.h"

namespace longhaul::worker {
namespace {

using codec::predict::Tables;
using codec::predict::TablesShape;

constexpr uint64_t kWordsOfCheck = 4;
// Rows have means of values and of means that are smaller than kTeachable.
constexpr float kMostMean = 4 * codec::predict::kTeachable;

std::string NameOf(uint32_t layers_before, std::string_view what) {
  return fmt::format("boundary.after_layer_{}.{}", layers_before, what);
}

// The arrays of one boundary, in the order of a file.
class Reader {
 public:
  Reader(const std::vector<NamedArray>& arrays, uint32_t layers_before)
      : arrays_(arrays), layers_before_(layers_before) {}

  const NamedArray* Find(std::string_view what) const {
    const std::string name = NameOf(layers_before_, what);
    const auto found =
        std::ranges::find_if(arrays_, [&](const NamedArray& one) { return one.name == name; });
    return found == arrays_.end() ? nullptr : &*found;
  }
  // Returns the values of an array of fp32. The array must have this shape, and all values must be
  // from `least` to `most`.
  StatusOr<std::span<const float>> Read(std::string_view what, const std::vector<int64_t>& shape,
                                        float least, float most) const {
    LH_ASSIGN_OR_RETURN(const NamedArray* array, FindOf(what, shape, /*in_bf16=*/false));
    const bool possible = std::ranges::all_of(
        array->values, [&](float value) { return value >= least && value <= most; });
    if (possible) return std::span<const float>(array->values);
    return FailedPrecondition("{} of the checkpoint has values that no run writes", array->name);
  }
  // Returns the values of an array of bf16. The array must have this shape, and all values must be
  // from -most to `most`.
  StatusOr<std::span<const uint16_t>> ReadRows(std::string_view what,
                                               const std::vector<int64_t>& shape,
                                               float most) const {
    LH_ASSIGN_OR_RETURN(const NamedArray* array, FindOf(what, shape, /*in_bf16=*/true));
    const bool possible = std::ranges::all_of(
        array->halves, [&](uint16_t half) { return std::fabs(Bf16ToF32(half)) <= most; });
    if (possible) return std::span<const uint16_t>(array->halves);
    return FailedPrecondition("{} of the checkpoint has values that no run writes", array->name);
  }

 private:
  StatusOr<const NamedArray*> FindOf(std::string_view what, const std::vector<int64_t>& shape,
                                     bool in_bf16) const {
    const NamedArray* array = Find(what);
    if (array != nullptr && array->shape == shape && array->halves.empty() != in_bf16) return array;
    const auto text = [](const std::vector<int64_t>& sizes, bool is_bf16) {
      return fmt::format("({}) in {}", fmt::join(sizes, ", "), is_bf16 ? "bf16" : "fp32");
    };
    return FailedPrecondition(
        "expected {} of shape {} in the checkpoint, it has {}", NameOf(layers_before_, what),
        text(shape, in_bf16),
        array == nullptr ? "none" : text(array->shape, !array->halves.empty()));
  }

  const std::vector<NamedArray>& arrays_;
  const uint32_t layers_before_;
};

int64_t Signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

}  // namespace

std::vector<NamedArray> ArraysOf(const Tables& tables, uint32_t layers_before) {
  const TablesShape& shape = tables.shape();
  const std::span<const uint32_t> counts = tables.counts();
  std::vector<NamedArray> arrays;
  const auto add = [&](std::string_view what, std::vector<int64_t> sizes,
                       std::vector<float> values) {
    arrays.push_back({.name = NameOf(layers_before, what),
                      .shape = std::move(sizes),
                      .values = std::move(values)});
  };
  const auto add_counts = [&](std::string_view what, std::span<const uint32_t> some) {
    add(what, {Signed(some.size())}, std::vector<float>(some.begin(), some.end()));
  };
  const auto add_rows = [&](std::string_view what, uint64_t first, uint64_t rows) {
    const std::span<const uint16_t> values(tables.Row(first), rows * shape.channels);
    arrays.push_back({.name = NameOf(layers_before, what),
                      .shape = {Signed(rows), shape.channels},
                      .values = {},
                      .halves = {values.begin(), values.end()}});
  };
  std::vector<float> check;
  for (uint64_t k = 0; k < kWordsOfCheck; ++k) {
    check.push_back(static_cast<float>(tables.check() >> (16 * k) & 0xffff));
  }
  add("check", {Signed(kWordsOfCheck)}, std::move(check));
  add("mean", {shape.channels}, std::vector<float>(tables.mean(), tables.mean() + shape.channels));
  add_counts("mean_count", counts.last(1));
  add_rows("tokens", 0, shape.vocabulary);
  add_counts("token_counts", counts.first(shape.vocabulary));
  if (shape.pairs == 0) return arrays;
  add_rows("pairs", shape.vocabulary, shape.pairs);
  add_counts("pair_counts", counts.subspan(shape.vocabulary, shape.pairs));
  return arrays;
}

StatusOr<std::optional<Tables>> TablesFrom(const std::vector<NamedArray>& arrays,
                                           uint32_t layers_before, const TablesShape& shape) {
  const Reader reader(arrays, layers_before);
  if (reader.Find("check") == nullptr) return std::optional<Tables>();
  LH_ASSIGN_OR_RETURN(Tables tables, Tables::Create(shape));
  const auto read_counts = [&](std::string_view what, uint64_t first, uint64_t rows) -> Status {
    constexpr auto kMost = static_cast<float>(codec::predict::kMostCounted);
    LH_ASSIGN_OR_RETURN(const auto counts, reader.Read(what, {Signed(rows)}, 0, kMost));
    std::ranges::copy(counts, tables.counts().subspan(first).begin());
    return absl::OkStatus();
  };
  const auto read_rows = [&](std::string_view what, uint64_t first, uint64_t rows) -> Status {
    LH_ASSIGN_OR_RETURN(const auto values,
                        reader.ReadRows(what, {Signed(rows), shape.channels}, kMostMean));
    std::ranges::copy(values, tables.Row(first));
    return absl::OkStatus();
  };
  LH_ASSIGN_OR_RETURN(const auto check, reader.Read("check", {Signed(kWordsOfCheck)}, 0, 0xffff));
  LH_ASSIGN_OR_RETURN(const auto mean,
                      reader.Read("mean", {shape.channels}, -kMostMean, kMostMean));
  std::ranges::copy(mean, tables.mean());
  LH_RETURN_IF_ERROR(read_counts("mean_count", shape.rows(), 1));
  LH_RETURN_IF_ERROR(read_rows("tokens", 0, shape.vocabulary));
  LH_RETURN_IF_ERROR(read_counts("token_counts", 0, shape.vocabulary));
  if (shape.pairs > 0) {
    LH_RETURN_IF_ERROR(read_rows("pairs", shape.vocabulary, shape.pairs));
    LH_RETURN_IF_ERROR(read_counts("pair_counts", shape.vocabulary, shape.pairs));
  }
  uint64_t word = 0;
  for (uint64_t k = 0; k < kWordsOfCheck; ++k) word |= static_cast<uint64_t>(check[k]) << (16 * k);
  tables.set_check(word);
  return std::optional(std::move(tables));
}

}  // namespace longhaul::worker
