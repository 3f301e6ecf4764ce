// For tests: predict's tables in double precision, by the definition in format.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "codec/predict/format.h"

namespace longhaul::codec::predict {

class ReferenceTables {
 public:
  ReferenceTables(const Params& params, uint32_t channels) : params_(params), channels_(channels) {}

  // Returns p for every element of a tensor with these ids.
  std::vector<double> Predict(std::span<const uint32_t> ids, const Shape& shape) const;
  // Updates the tables with a tensor. `decoded`: x'; elements that are not finite are NaN.
  void Learn(std::span<const uint32_t> ids, const Shape& shape, std::span<const double> decoded);

  // The next two return a row's means; zeros if the row was never updated.
  std::vector<double> TokenRow(uint32_t token) const { return RowOf(tokens_, token); }
  std::vector<double> PairRow(uint32_t pair) const { return RowOf(pairs_, pair); }

 private:
  struct Row {
    std::vector<double> means;
    uint64_t count = 0;
  };
  using Table = std::map<uint32_t, Row>;
  std::vector<double> RowOf(const Table& table, uint32_t row) const;
  uint32_t PairAt(std::span<const uint32_t> ids, const Shape& shape, uint64_t place) const;
  void LearnRows(const std::map<uint32_t, std::vector<std::vector<double>>>& seen, uint32_t prior,
                 Table* table) const;

  const Params params_;
  const uint32_t channels_;
  Table tokens_, pairs_;
};

}  // namespace longhaul::codec::predict
