// A reference of the optimizer Muon, in double precision on plain arrays. Tests compare the results
// of worker/stage with this reference, on any device. Shapes must fit; nothing is checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace longhaul::testing {

// A matrix, row-major.
struct Plain {
  size_t rows = 0, columns = 0;
  std::vector<double> values;

  double& at(size_t r, size_t c) { return values[r * columns + c]; }
  double at(size_t r, size_t c) const { return values[r * columns + c]; }
};

inline Plain PlainZeros(size_t rows, size_t columns) {
  return {rows, columns, std::vector<double>(rows * columns)};
}

// Copies one matrix out of a stack of `matrices` matrices of equal shape, which lie one below
// another in row-major memory. `rows_of_all`: rows of the whole stack. `matrix`: index from 0.
inline Plain PlainOf(const float* stacked, size_t rows_of_all, size_t columns, size_t matrices,
                     size_t matrix) {
  const size_t rows = rows_of_all / matrices;
  const float* from = stacked + matrix * rows * columns;
  return {rows, columns, std::vector<double>(from, from + rows * columns)};
}

inline Plain Times(const Plain& a, const Plain& b) {
  Plain product = PlainZeros(a.rows, b.columns);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t k = 0; k < a.columns; ++k) {
      const double factor = a.at(i, k);
      const double* from = b.values.data() + k * b.columns;
      double* to = product.values.data() + i * b.columns;
      for (size_t j = 0; j < b.columns; ++j) to[j] += factor * from[j];
    }
  }
  return product;
}

inline Plain Transposed(const Plain& a) {
  Plain out = PlainZeros(a.columns, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.columns; ++j) out.at(j, i) = a.at(i, j);
  }
  return out;
}

// Returns a nearly orthogonal matrix with the directions of `x`: scales `x` to Frobenius norm 1,
// then does five times X <- a X + b X (X'X) + c X (X'X)(X'X), where X' is X transposed.
inline Plain NewtonSchulz(Plain x) {
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::sqrt(squares) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const Plain inner = Times(Transposed(x), x);
    const Plain third = Times(x, inner);
    const Plain fifth = Times(third, inner);
    for (size_t k = 0; k < x.values.size(); ++k) {
      x.values[k] = 3.4445 * x.values[k] - 4.7750 * third.values[k] + 2.0315 * fifth.values[k];
    }
  }
  return x;
}

struct PlainMuonRate {
  double lr = 0, weight_decay = 0, momentum = 0;
};

// Does one optimizer step on one matrix: updates *value and *momentum (Muon's momentum buffer).
// `gradient`: already clipped.
inline void PlainMuonStep(const PlainMuonRate& rate, const Plain& gradient, Plain* value,
                          Plain* momentum) {
  Plain update = gradient;
  for (size_t i = 0; i < update.values.size(); ++i) {
    momentum->values[i] = rate.momentum * momentum->values[i] + gradient.values[i];
    update.values[i] = gradient.values[i] + rate.momentum * momentum->values[i];
  }
  const Plain orthogonal = NewtonSchulz(update);
  const double size = 0.2 * std::sqrt(static_cast<double>(std::max(value->rows, value->columns)));
  for (size_t i = 0; i < update.values.size(); ++i) {
    value->values[i] -=
        rate.lr * (size * orthogonal.values[i] + rate.weight_decay * value->values[i]);
  }
}

}  // namespace longhaul::testing
