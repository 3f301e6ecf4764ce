#include "codec/predict/reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace longhaul::codec::predict {
namespace {

using Vectors = std::vector<std::vector<double>>;

std::vector<double> Minus(std::vector<double> a, const std::vector<double>& b) {
  for (size_t c = 0; c < a.size(); ++c) a[c] -= b[c];
  return a;
}

}  // namespace

std::vector<double> ReferenceTables::RowOf(const Table& table, uint32_t row) const {
  const auto found = table.find(row);
  return found == table.end() ? std::vector<double>(channels_) : found->second.means;
}

std::vector<double>* ReferenceTables::RowIfLearned(bool of_pairs, uint32_t row) {
  Table& table = of_pairs ? pairs_ : tokens_;
  const auto found = table.find(row);
  return found == table.end() ? nullptr : &found->second.means;
}

uint32_t ReferenceTables::PairAt(std::span<const uint32_t> ids, const Shape& shape,
                                 uint64_t place) const {
  const uint64_t before = place % shape.tokens == 0 ? 0 : ids[place - 1];
  const uint64_t hash = before * 0x9e3779b97f4a7c15u + ids[place] * 0xc2b2ae3d27d4eb4fu;
  return static_cast<uint32_t>(hash >> (64 - params_.log2_pairs));
}

std::vector<double> ReferenceTables::Predict(std::span<const uint32_t> ids,
                                             const Shape& shape) const {
  std::vector<double> result;
  for (uint64_t k = 0; k < ids.size(); ++k) {
    std::vector<double> row = RowOf(tokens_, ids[k]);
    for (uint32_t c = 0; c < channels_; ++c) row[c] += mean_.means[c];
    if (params_.log2_pairs > 0) {
      const std::vector<double> pair = RowOf(pairs_, PairAt(ids, shape, k));
      for (uint32_t c = 0; c < channels_; ++c) row[c] += pair[c];
    }
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

void ReferenceTables::LearnRow(const std::vector<std::vector<double>>& values, uint32_t prior,
                               Row* row) const {
  row->means.resize(channels_);
  const uint64_t now = std::min<uint64_t>(values.size(), 1 << 24);
  row->count = std::min<uint64_t>(row->count + values.size(), 1 << 24);
  const double rate = std::max(static_cast<double>(now) / static_cast<double>(row->count + prior),
                               static_cast<double>(params_.rate));
  for (uint32_t c = 0; c < channels_; ++c) {
    double sum = 0;
    for (const std::vector<double>& value : values) sum += value[c];
    row->means[c] += rate * (sum / static_cast<double>(values.size()) - row->means[c]);
  }
}

std::map<uint64_t, std::vector<double>> ReferenceTables::TaughtBy(
    std::span<const double> decoded) const {
  std::map<uint64_t, std::vector<double>> taught;
  for (uint64_t k = 0; k < decoded.size() / channels_; ++k) {
    const auto values = decoded.subspan(k * channels_, channels_);
    if (!std::ranges::all_of(values, [](double x) { return std::fabs(x) < 0x1p64; })) continue;
    taught[k] = {values.begin(), values.end()};
  }
  return taught;
}

void ReferenceTables::LearnTokens(std::span<const uint32_t> ids, std::span<const double> decoded) {
  if (mean_.count == 0) return;
  std::map<uint32_t, Vectors> by_token;
  for (const auto& [k, x] : TaughtBy(decoded)) by_token[ids[k]].push_back(Minus(x, mean_.means));
  for (const auto& [token, values] : by_token) LearnRow(values, 0, &tokens_[token]);
}

void ReferenceTables::LearnPairsAndMean(std::span<const uint32_t> ids, const Shape& shape,
                                        std::span<const double> decoded) {
  std::map<uint32_t, Vectors> by_pair;
  Vectors all;
  for (const auto& [k, x] : TaughtBy(decoded)) {
    all.push_back(x);
    if (params_.log2_pairs == 0 || mean_.count == 0) continue;
    by_pair[PairAt(ids, shape, k)].push_back(Minus(Minus(x, mean_.means), RowOf(tokens_, ids[k])));
  }
  for (const auto& [pair, values] : by_pair) LearnRow(values, params_.prior, &pairs_[pair]);
  if (!all.empty()) LearnRow(all, 0, &mean_);
}

}  // namespace longhaul::codec::predict
