#include "codec/predict/reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace longhaul::codec::predict {

std::vector<double> ReferenceTables::RowOf(const Table& table, uint32_t row) const {
  const auto found = table.find(row);
  return found == table.end() ? std::vector<double>(channels_) : found->second.means;
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
    std::vector<double> row = TokenRow(ids[k]);
    if (params_.log2_pairs > 0) {
      const std::vector<double> pair = PairRow(PairAt(ids, shape, k));
      for (uint32_t c = 0; c < channels_; ++c) row[c] += pair[c];
    }
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

void ReferenceTables::LearnRows(const std::map<uint32_t, std::vector<std::vector<double>>>& seen,
                                uint32_t prior, Table* table) const {
  for (const auto& [number, values] : seen) {
    Row& row = (*table)[number];
    row.means.resize(channels_);
    const uint64_t now = std::min<uint64_t>(values.size(), 1 << 24);
    row.count = std::min<uint64_t>(row.count + values.size(), 1 << 24);
    const double rate = std::max(static_cast<double>(now) / static_cast<double>(row.count + prior),
                                 static_cast<double>(params_.rate));
    for (uint32_t c = 0; c < channels_; ++c) {
      double sum = 0;
      for (const std::vector<double>& value : values) sum += value[c];
      row.means[c] += rate * (sum / static_cast<double>(values.size()) - row.means[c]);
    }
  }
}

void ReferenceTables::Learn(std::span<const uint32_t> ids, const Shape& shape,
                            std::span<const double> decoded) {
  std::map<uint32_t, std::vector<std::vector<double>>> by_token;
  std::vector<uint64_t> taught;
  for (uint64_t k = 0; k < ids.size(); ++k) {
    const auto place = decoded.subspan(k * channels_, channels_);
    if (!std::ranges::all_of(place, [](double x) { return std::fabs(x) < 0x1p64; })) continue;
    by_token[ids[k]].emplace_back(place.begin(), place.end());
    taught.push_back(k);
  }
  LearnRows(by_token, 0, &tokens_);
  if (params_.log2_pairs == 0) return;
  std::map<uint32_t, std::vector<std::vector<double>>> by_pair;
  for (const uint64_t k : taught) {
    std::vector<double> unknown = TokenRow(ids[k]);
    for (uint32_t c = 0; c < channels_; ++c) unknown[c] = decoded[k * channels_ + c] - unknown[c];
    by_pair[PairAt(ids, shape, k)].push_back(std::move(unknown));
  }
  LearnRows(by_pair, params_.prior, &pairs_);
}

}  // namespace longhaul::codec::predict
