#include "worker/pipeline/boundary_tables.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "codec/predict/arithmetic.h"

namespace longhaul::worker {
namespace {

using codec::predict::Tables;
using codec::predict::TablesShape;

constexpr uint64_t kWordsOfCheck = 4;
// A mean of pairs is of values and of means that are smaller than kTeachable.
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
  // With this shape and values from 0 (or -most) to `most`.
  StatusOr<std::span<const float>> Read(std::string_view what, const std::vector<int64_t>& shape,
                                        float least, float most) const {
    const NamedArray* array = Find(what);
    if (array == nullptr || array->shape != shape) {
      return FailedPrecondition(
          "expected {} of shape ({}) in the checkpoint, it has {}", NameOf(layers_before_, what),
          fmt::join(shape, ", "),
          array == nullptr ? "none" : fmt::format("({})", fmt::join(array->shape, ", ")));
    }
    const bool possible = std::ranges::all_of(
        array->values, [&](float value) { return value >= least && value <= most; });
    if (possible) return std::span<const float>(array->values);
    return FailedPrecondition("{} of the checkpoint has values that no run writes", array->name);
  }

 private:
  const std::vector<NamedArray>& arrays_;
  const uint32_t layers_before_;
};

int64_t Signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

}  // namespace

std::vector<NamedArray> ArraysOf(const Tables& tables, uint32_t layers_before) {
  const TablesShape& shape = tables.shape();
  const std::span<const float> means = tables.means();
  const std::span<const uint32_t> counts = tables.counts();
  const auto add = [&](std::vector<NamedArray>* arrays, std::string_view what,
                       std::vector<int64_t> sizes, auto values) {
    arrays->push_back({.name = NameOf(layers_before, what),
                       .shape = std::move(sizes),
                       .values = std::vector<float>(values.begin(), values.end())});
  };
  const uint64_t of_tokens = uint64_t{shape.vocabulary} * shape.channels;
  std::vector<float> check;
  for (uint64_t k = 0; k < kWordsOfCheck; ++k) {
    check.push_back(static_cast<float>(tables.check() >> (16 * k) & 0xffff));
  }
  std::vector<NamedArray> arrays;
  add(&arrays, "check", {Signed(kWordsOfCheck)}, std::span(check));
  add(&arrays, "tokens", {shape.vocabulary, shape.channels}, means.first(of_tokens));
  add(&arrays, "token_counts", {shape.vocabulary}, counts.first(shape.vocabulary));
  if (shape.pairs == 0) return arrays;
  add(&arrays, "pairs", {shape.pairs, shape.channels}, means.subspan(of_tokens));
  add(&arrays, "pair_counts", {shape.pairs}, counts.subspan(shape.vocabulary));
  return arrays;
}

StatusOr<std::optional<Tables>> TablesFrom(const std::vector<NamedArray>& arrays,
                                           uint32_t layers_before, const TablesShape& shape) {
  const Reader reader(arrays, layers_before);
  if (reader.Find("check") == nullptr) return std::optional<Tables>();
  constexpr auto kMostCount = static_cast<float>(codec::predict::kMostCounted);
  LH_ASSIGN_OR_RETURN(Tables tables, Tables::Create(shape));
  LH_ASSIGN_OR_RETURN(const auto check, reader.Read("check", {Signed(kWordsOfCheck)}, 0, 0xffff));
  LH_ASSIGN_OR_RETURN(const auto tokens, reader.Read("tokens", {shape.vocabulary, shape.channels},
                                                     -kMostMean, kMostMean));
  LH_ASSIGN_OR_RETURN(const auto token_counts,
                      reader.Read("token_counts", {shape.vocabulary}, 0, kMostCount));
  std::ranges::copy(tokens, tables.means().begin());
  std::ranges::copy(token_counts, tables.counts().begin());
  if (shape.pairs > 0) {
    LH_ASSIGN_OR_RETURN(const auto pairs,
                        reader.Read("pairs", {shape.pairs, shape.channels}, -kMostMean, kMostMean));
    LH_ASSIGN_OR_RETURN(const auto pair_counts,
                        reader.Read("pair_counts", {shape.pairs}, 0, kMostCount));
    std::ranges::copy(pairs, tables.means().subspan(tokens.size()).begin());
    std::ranges::copy(pair_counts, tables.counts().subspan(token_counts.size()).begin());
  }
  uint64_t word = 0;
  for (uint64_t k = 0; k < kWordsOfCheck; ++k) word |= static_cast<uint64_t>(check[k]) << (16 * k);
  tables.set_check(word);
  return std::optional(std::move(tables));
}

}  // namespace longhaul::worker
