// For tests: predict's tables in double precision, by the definition in format.h. Rows are
// not rounded to bf16.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "codec/predict/format.h"

namespace longhaul::codec::predict {

class ReferenceTables {
 public:
  ReferenceTables(const Params& params, uint32_t channels) : params_(params), channels_(channels) {
    mean_.means.resize(channels);
  }

  // Returns p for every element of a tensor with these ids.
  std::vector<double> Predict(std::span<const uint32_t> ids, const Shape& shape) const;
  // Update the tables with a tensor; call both, in this order. `decoded`: x'; elements that are not
  // finite are NaN.
  void LearnTokens(std::span<const uint32_t> ids, std::span<const double> decoded);
  void LearnPairsAndMean(std::span<const uint32_t> ids, const Shape& shape,
                         std::span<const double> decoded);

  // The mean over all tokens.
  const std::vector<double>& mean() const { return mean_.means; }
  // Returns a row of A or, if `of_pairs`, of P, to be read or rounded. Null if the row has never
  // learned.
  std::vector<double>* RowIfLearned(bool of_pairs, uint32_t row);

 private:
  struct Row {
    std::vector<double> means;
    uint64_t count = 0;
  };
  using Table = std::map<uint32_t, Row>;
  std::vector<double> RowOf(const Table& table, uint32_t row) const;
  uint32_t PairAt(std::span<const uint32_t> ids, const Shape& shape, uint64_t place) const;
  // The values of tokens from which tables learn, by place.
  std::map<uint64_t, std::vector<double>> TaughtBy(std::span<const double> decoded) const;
  // Moves `row` towards the mean of `values` (a vector of all channels for each).
  void LearnRow(const std::vector<std::vector<double>>& values, uint32_t prior, Row* row) const;

  const Params params_;
  const uint32_t channels_;
  Row mean_;
  Table tokens_, pairs_;
};

}  // namespace longhaul::codec::predict
