// Attention over windows, documents and slices, and the same from a whole matrix of scores in
// double.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "worker/stage/model/attention.h"

namespace longhaul::worker {

struct AttentionCase {
  std::string name;
  int64_t rows = 2, heads = 4, heads_of_keys = 2, first = 0, tokens = 40, channels = 16;
  Scoring scoring = {};
  std::vector<int64_t> lengths = {};  // of the documents of each row; empty: each is one
};
inline void PrintTo(const AttentionCase& one, std::ostream* out) {
  *out << one.name;
}

inline std::vector<AttentionCase> AttentionCases() {
  const std::vector<int64_t> documents = {9, 1, 14, 3, 33};  // cut where the row ends
  std::vector<AttentionCase> cases = {
      {.name = "plain"},
      {.name = "window", .scoring = {.window = 7}},
      {.name = "window_of_one", .scoring = {.window = 1}},
      {.name = "window_beyond_the_row", .scoring = {.window = 400}},
      {.name = "documents", .lengths = documents},
      {.name = "documents_and_window", .scoring = {.window = 5}, .lengths = documents},
      {.name = "slice", .first = 20, .tokens = 20},
      {.name = "slice_and_window", .first = 20, .tokens = 20, .scoring = {.window = 7}},
      {.name = "slice_and_documents", .first = 20, .tokens = 20, .lengths = documents},
      {.name = "slice_documents_window",
       .first = 13,
       .tokens = 20,
       .scoring = {.window = 4},
       .lengths = documents},
      {.name = "token", .first = 20, .tokens = 1},
      {.name = "token_and_window", .first = 20, .tokens = 1, .scoring = {.window = 7}},
      {.name = "scale", .scoring = {.scale = 0.1, .window = 7}},
      {.name = "heads_of_their_own",
       .heads_of_keys = 4,
       .scoring = {.window = 7},
       .lengths = documents},
  };
  const size_t without_caps = cases.size();
  for (size_t i = 0; i < without_caps; ++i) {
    AttentionCase capped = cases[i];
    capped.name += "_capped";
    capped.scoring.cap = 1.5;
    cases.push_back(capped);
  }
  return cases;
}

// Queries, keys, values and the gradient of the output.
struct AttentionInput {
  at::Tensor queries, keys, values, gradient, documents;
  int64_t most_documents = 0;
};
inline AttentionInput InputOf(const AttentionCase& one, const at::TensorOptions& options) {
  const int64_t all = one.first + one.tokens;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);  // the same numbers each time
  const auto random = [&](int64_t heads, int64_t tokens) {
    return at::empty({one.rows, heads, tokens, one.channels}, at::kFloat)
        .normal_(0, 1, generator)
        .to(options);
  };
  AttentionInput input{.queries = random(one.heads, one.tokens),
                       .keys = random(one.heads_of_keys, all),
                       .values = random(one.heads_of_keys, all),
                       .gradient = random(one.heads, one.tokens),
                       .documents = {}};
  if (one.lengths.empty()) return input;
  std::vector<int64_t> numbers;
  for (int64_t row = 0; row < one.rows; ++row) {
    // Each row begins with another document.
    int64_t left = 0, number = -1;
    for (int64_t token = 0; token < all; ++token, --left) {
      if (left == 0) {
        left = one.lengths[static_cast<size_t>(++number + row) % one.lengths.size()];
        ++input.most_documents;
      }
      numbers.push_back(number);
    }
  }
  input.documents = at::tensor(numbers).view({one.rows, all}).to(options.device());
  return input;
}

// What attention gives, and the gradients of queries, keys and values.
struct Attended {
  std::vector<at::Tensor> tensors;
};
template <class Attend>
Attended AttendedBy(const AttentionInput& input, const Attend& attend) {
  const at::Tensor q = input.queries.detach().clone().set_requires_grad(true);
  const at::Tensor k = input.keys.detach().clone().set_requires_grad(true);
  const at::Tensor v = input.values.detach().clone().set_requires_grad(true);
  const at::Tensor mixed = attend(q, k, v);
  mixed.backward(input.gradient.to(mixed.scalar_type()));
  return {{mixed.detach(), q.grad(), k.grad(), v.grad()}};
}

inline Attended ByScores(const AttentionCase& one, const AttentionInput& input) {
  const int64_t all = one.first + one.tokens, group = one.heads / one.heads_of_keys;
  const auto whole = at::TensorOptions(at::kLong).device(input.queries.device());
  const at::Tensor query = at::arange(one.first, all, whole).view({1, 1, -1, 1});
  const at::Tensor key = at::arange(all, whole).view({1, 1, 1, -1});
  at::Tensor seen = key.le(query);
  if (one.scoring.window > 0) seen = seen.logical_and(key.gt(query - one.scoring.window));
  if (input.documents.defined()) {
    const at::Tensor& d = input.documents;
    seen = seen.logical_and(d.narrow(1, one.first, one.tokens)
                                .view({one.rows, 1, -1, 1})
                                .eq(d.view({one.rows, 1, 1, -1})));
  }
  return AttendedBy(input, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const double scale = one.scoring.scale > 0 ? one.scoring.scale
                                               : 1 / std::sqrt(static_cast<double>(one.channels));
    at::Tensor scores = at::matmul(q.to(at::kDouble),
                                   k.to(at::kDouble).repeat_interleave(group, 1).transpose(2, 3)) *
                        scale;
    if (one.scoring.cap > 0) scores = (scores / one.scoring.cap).tanh() * one.scoring.cap;
    const at::Tensor shares =
        scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity())
            .softmax(-1);
    return at::matmul(shares, v.to(at::kDouble).repeat_interleave(group, 1));
  });
}

inline Attended BySight(const AttentionCase& one, const AttentionInput& input) {
  const Sight sight(one.first, one.tokens, input.documents, input.most_documents);
  return AttendedBy(input, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return sight.Attend(q, k, v, one.scoring);
  });
}

// The largest difference of each tensor, relative to the largest value where that is above 1.
inline std::vector<double> Differences(const Attended& got, const Attended& expected) {
  std::vector<double> differences;
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    const at::Tensor theirs = expected.tensors[i].to(at::kDouble);
    differences.push_back(
        ((got.tensors[i].to(at::kDouble) - theirs).abs().max() / theirs.abs().max().clamp_min(1))
            .item<double>());
  }
  return differences;
}

}  // namespace longhaul::worker
