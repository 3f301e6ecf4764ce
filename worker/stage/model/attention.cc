#include "worker/stage/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "run/model/attention_chunks.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Consecutive queries, and the keys that they can see.
struct Chunk {
  int64_t begin = 0, count = 0;          // of the pass's tokens
  int64_t first_key = 0, key_count = 0;  // of all tokens
};

// `scores_of_key`: what a query has for each key, of all rows and heads. `most`: of a chunk.
std::vector<Chunk> ChunksOf(int64_t first, int64_t tokens, int64_t window, int64_t scores_of_key,
                            uint64_t most) {
  const int64_t all = first + tokens;
  const bool narrow = window > 0 && 2 * window < all;
  const int64_t keys = narrow ? 2 * window : all;
  auto each = static_cast<int64_t>(model::QueriesOfChunk(
      static_cast<uint64_t>(tokens), static_cast<uint64_t>(scores_of_key * keys), most));
  if (narrow) each = std::min(each, window);
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < tokens; begin += each) {
    const int64_t count = std::min(each, tokens - begin);
    const int64_t first_key = window > 0 ? std::max<int64_t>(first + begin - window + 1, 0) : 0;
    chunks.push_back({begin, count, first_key, first + begin + count - first_key});
  }
  return chunks;
}

// True where a query sees a key: (rows or 1, 1, queries, keys). `starts`: of the document of each
// token, (rows, tokens so far); undefined: a row is one document.
at::Tensor SeenIn(const at::Tensor& starts, int64_t first, int64_t window, const Chunk& chunk,
                  const at::Device& device) {
  const auto whole = at::TensorOptions(at::kLong).device(device);
  const int64_t from = first + chunk.begin;
  const at::Tensor queries = at::arange(from, from + chunk.count, whole).view({1, 1, -1, 1});
  const at::Tensor keys =
      at::arange(chunk.first_key, chunk.first_key + chunk.key_count, whole).view({1, 1, 1, -1});
  at::Tensor mask = keys.le(queries);
  if (window > 0) mask = mask.logical_and(keys.gt(queries - window));
  if (starts.defined()) {
    const at::Tensor of_queries = starts.narrow(1, from, chunk.count).unsqueeze(1).unsqueeze(3);
    mask = mask.logical_and(keys.ge(of_queries));
  }
  return mask;
}

// What autograd sees of attention with capped scores, for which there is no fused kernel. The
// scores of a chunk of queries at a time are in memory, in forward and again in backward.
struct CappedAttention : torch::autograd::Function<CappedAttention> {
  struct Shape {
    at::Tensor starts;  // as for SeenIn
    int64_t first = 0;
    Scoring scoring;  // with its scale
  };
  // Scores of a chunk: (rows, heads of keys, heads of each, queries, keys) fp32.
  struct Scores {
    at::Tensor queries;  // (rows, heads of keys, heads of each * queries, channels)
    at::Tensor tanh;     // of the scores over the cap
    at::Tensor shares;   // after softmax
  };

  static at::Tensor Grouped(const at::Tensor& of_heads, int64_t heads_of_keys) {
    return of_heads.reshape({of_heads.size(0), heads_of_keys, -1, of_heads.size(3)});
  }
  static Scores ScoresOf(const at::Tensor& queries, const at::Tensor& keys, const Shape& shape,
                         const Chunk& chunk) {
    const int64_t rows = queries.size(0), of_keys = keys.size(1);
    Scores scores;
    scores.queries = Grouped(queries.narrow(2, chunk.begin, chunk.count), of_keys);
    const at::Tensor seen = keys.narrow(2, chunk.first_key, chunk.key_count);
    scores.tanh = at::matmul(scores.queries, seen.transpose(2, 3))
                      .to(at::kFloat)
                      .mul_(shape.scoring.scale / shape.scoring.cap)
                      .tanh_()
                      .view({rows, of_keys, -1, chunk.count, chunk.key_count});
    const at::Tensor mask =
        SeenIn(shape.starts, shape.first, shape.scoring.window, chunk, queries.device())
            .unsqueeze(2);
    scores.shares = (scores.tanh * shape.scoring.cap)
                        .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity())
                        .softmax(-1);
    return scores;
  }
  static std::vector<Chunk> Chunks(const at::Tensor& queries, const Shape& shape) {
    return ChunksOf(shape.first, queries.size(2), shape.scoring.window,
                    queries.size(0) * queries.size(1), model::kScoresOfChunk);
  }

  static Variable forward(AutogradContext* context, const Variable& queries, const Variable& keys,
                          const Variable& values, const Shape& shape) {
    context->save_for_backward({queries, keys, values, shape.starts});
    context->saved_data["first"] = shape.first;
    context->saved_data["window"] = shape.scoring.window;
    context->saved_data["scale"] = shape.scoring.scale;
    context->saved_data["cap"] = shape.scoring.cap;
    at::Tensor mixed = at::empty(queries.sizes(), queries.options());
    for (const Chunk& chunk : Chunks(queries, shape)) {
      const Scores scores = ScoresOf(queries, keys, shape, chunk);
      const at::Tensor seen = values.narrow(2, chunk.first_key, chunk.key_count);
      const at::Tensor part =
          at::matmul(scores.shares.flatten(2, 3).to(values.scalar_type()), seen);
      mixed.narrow(2, chunk.begin, chunk.count)
          .copy_(part.reshape({queries.size(0), queries.size(1), chunk.count, queries.size(3)}));
    }
    return mixed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &queries = saved[0], &keys = saved[1], &values = saved[2];
    const Shape shape{.starts = saved[3],
                      .first = context->saved_data["first"].toInt(),
                      .scoring = {.scale = context->saved_data["scale"].toDouble(),
                                  .cap = context->saved_data["cap"].toDouble(),
                                  .window = context->saved_data["window"].toInt()}};
    const at::ScalarType type = queries.scalar_type();
    at::Tensor of_queries = at::empty(queries.sizes(), queries.options());
    at::Tensor of_keys = at::zeros(keys.sizes(), keys.options().dtype(at::kFloat));
    at::Tensor of_values = at::zeros(values.sizes(), values.options().dtype(at::kFloat));
    for (const Chunk& chunk : Chunks(queries, shape)) {
      const Scores scores = ScoresOf(queries, keys, shape, chunk);
      const at::Tensor seen_keys = keys.narrow(2, chunk.first_key, chunk.key_count);
      const at::Tensor seen_values = values.narrow(2, chunk.first_key, chunk.key_count);
      const at::Tensor of_mixed =
          Grouped(gradients[0].narrow(2, chunk.begin, chunk.count), keys.size(1));
      const at::Tensor shares = scores.shares.flatten(2, 3);
      of_values.narrow(2, chunk.first_key, chunk.key_count)
          .add_(at::matmul(shares.to(type).transpose(2, 3), of_mixed));
      const at::Tensor of_shares = at::matmul(of_mixed, seen_values.transpose(2, 3)).to(at::kFloat);
      const at::Tensor weighted = of_shares * shares;
      // Through softmax, then through the cap.
      const at::Tensor of_scores = (weighted - shares * weighted.sum(-1, /*keepdim=*/true))
                                       .mul_(1 - scores.tanh.flatten(2, 3).square())
                                       .mul_(shape.scoring.scale)
                                       .to(type);
      of_queries.narrow(2, chunk.begin, chunk.count)
          .copy_(at::matmul(of_scores, seen_keys)
                     .reshape({queries.size(0), queries.size(1), chunk.count, queries.size(3)}));
      of_keys.narrow(2, chunk.first_key, chunk.key_count)
          .add_(at::matmul(of_scores.transpose(2, 3), scores.queries));
    }
    return {of_queries, of_keys.to(type), of_values.to(type), Variable()};
  }
};

// True for products that FlashAttention computes.
bool HasFusedKernel(const at::Tensor& queries) {
  return queries.is_cuda() && queries.scalar_type() == at::kBFloat16 &&
         model::HasFusedKernel(static_cast<uint64_t>(queries.size(3)));
}

std::optional<double> ScaleOf(const Scoring& scoring) {
  return scoring.scale > 0 ? std::optional(scoring.scale) : std::nullopt;
}

}  // namespace

Sight::Sight(int64_t first, int64_t tokens, const at::Tensor& documents, int64_t most_documents)
    : first_(first), tokens_(tokens), most_documents_(most_documents) {
  if (!documents.defined()) return;
  const at::NoGradGuard no_grad;
  documents_ = documents.narrow(1, 0, first + tokens);
  const at::Tensor places = at::arange(first + tokens, documents_.options()).unsqueeze(0);
  at::Tensor begins = at::ones_like(documents_, documents_.options().dtype(at::kBool));
  if (first + tokens > 1) {
    begins.narrow(1, 1, first + tokens - 1)
        .copy_(documents_.narrow(1, 1, first + tokens - 1)
                   .ne(documents_.narrow(1, 0, first + tokens - 1)));
  }
  starts_ = std::get<0>(at::cummax(places * begins, 1));
}

at::Tensor Sight::Positions() const {
  if (!starts_.defined()) return {};
  const at::NoGradGuard no_grad;
  return at::arange(first_, first_ + tokens_, starts_.options()).unsqueeze(0) -
         starts_.narrow(1, first_, tokens_);
}

const at::Tensor& Sight::MaskOf(int64_t window, int64_t begin, int64_t first_key,
                                const at::Tensor& queries, const at::Tensor& keys) const {
  at::Tensor& mask = masks_[{window, begin}];
  if (mask.defined()) return mask;
  const at::NoGradGuard no_grad;
  const at::Tensor seen = SeenIn(
      starts_, first_, window, {begin, queries.size(2), first_key, keys.size(2)}, queries.device());
  mask = at::zeros(seen.sizes(), queries.options().requires_grad(false))
             .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  return mask;
}

const Sight::Lengths& Sight::LengthsOfDocuments() const {
  if (lengths_) return *lengths_;
  const at::NoGradGuard no_grad;
  const int64_t all = first_ + tokens_, rows = documents_.size(0), total = rows * all;
  const at::Tensor places = at::arange(total, documents_.options()).view({rows, all});
  const at::Tensor begins = starts_.eq(at::arange(all, documents_.options()).unsqueeze(0));
  // The places where documents begin come first, then `total`, as often as documents are missing.
  const at::Tensor sorted = std::get<0>(at::where(begins, places, total).flatten().sort());
  const int64_t documents = std::min(most_documents_, total);
  const at::Tensor keys =
      at::cat({sorted.narrow(0, 0, documents), at::full({1}, total, documents_.options())});
  const at::Tensor row = keys.floor_divide(all);
  const at::Tensor queries = row * tokens_ + (keys - row * all - first_).clamp(0, tokens_);
  lengths_ = {queries.to(at::kInt), keys.to(at::kInt)};
  return *lengths_;
}

at::Tensor Sight::Fused(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                        const Scoring& scoring) const {
  const std::optional<int64_t> back =
      scoring.window > 0 ? std::optional(scoring.window - 1) : std::nullopt;
  const auto run = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const std::optional<at::Tensor>& of_queries,
                       const std::optional<at::Tensor>& of_keys) {
    return std::get<0>(at::_flash_attention_forward(
        q, k, v, of_queries, of_keys, tokens_, first_ + tokens_, /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, ScaleOf(scoring), back,
        back ? std::optional<int64_t>(0) : std::nullopt));
  };
  const at::Tensor q = queries.transpose(1, 2), k = keys.transpose(1, 2),
                   v = values.transpose(1, 2);
  if (!documents_.defined()) return run(q, k, v, {}, {}).transpose(1, 2);
  const Lengths& lengths = LengthsOfDocuments();
  return run(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), lengths.queries, lengths.keys)
      .view(q.sizes())
      .transpose(1, 2);
}

at::Tensor Sight::Masked(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, const Scoring& scoring) const {
  const int64_t rows_of_mask = documents_.defined() ? queries.size(0) : 1;
  const auto attend = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const std::optional<at::Tensor>& mask, bool causal) {
    return at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, causal,
                                            ScaleOf(scoring),
                                            /*enable_gqa=*/k.size(1) != q.size(1));
  };
  if (!documents_.defined() && scoring.window == 0) {
    // Without a mask attention uses the fast causal kernel, which does only for whole sequences.
    if (first_ == 0) return attend(queries, keys, values, {}, true);
    if (tokens_ == 1) return attend(queries, keys, values, {}, false);
  }
  const std::vector<Chunk> chunks =
      ChunksOf(first_, tokens_, scoring.window, rows_of_mask, model::kMaskOfChunk);
  std::vector<at::Tensor> mixed;
  for (const Chunk& chunk : chunks) {
    const at::Tensor q = queries.narrow(2, chunk.begin, chunk.count);
    const at::Tensor k = keys.narrow(2, chunk.first_key, chunk.key_count);
    const at::Tensor v = values.narrow(2, chunk.first_key, chunk.key_count);
    mixed.push_back(
        attend(q, k, v, MaskOf(scoring.window, chunk.begin, chunk.first_key, q, k), false));
  }
  return mixed.size() == 1 ? mixed[0] : at::cat(mixed, 2);
}

at::Tensor Sight::Attend(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, const Scoring& asked) const {
  LH_CHECK(queries.size(2) == tokens_ && keys.size(2) == first_ + tokens_,
           "{} queries and {} keys of {} tokens behind {}", queries.size(2), keys.size(2), tokens_,
           first_);
  Scoring scoring = asked;
  if (scoring.window >= first_ + tokens_) scoring.window = 0;
  if (scoring.cap > 0) {
    if (scoring.scale == 0) scoring.scale = 1 / std::sqrt(static_cast<double>(queries.size(3)));
    return CappedAttention::apply(queries, keys, values,
                                  CappedAttention::Shape{starts_, first_, scoring});
  }
  const bool plain = !documents_.defined() && scoring.window == 0 && first_ == 0;
  if (!plain && HasFusedKernel(queries)) return Fused(queries, keys, values, scoring);
  const int64_t group = queries.size(1) / keys.size(1);
  const bool shares = plain && queries.scalar_type() != at::kFloat;
  if (group == 1 || !queries.is_cuda() || shares) return Masked(queries, keys, values, scoring);
  // Only a GPU's kernels for bf16 without a mask know that a head of keys and values serves several
  // heads of queries; without a kernel whole score matrices would stand in memory.
  return Masked(queries, keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1),
                scoring);
}

}  // namespace longhaul::worker
