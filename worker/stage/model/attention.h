// Attention of the tokens of a pass to themselves and to earlier tokens: within documents, within
// sliding windows, with capped scores, over sequence chunks that follow earlier ones.
//
// On a GPU products in bf16 run in fused kernels (FlashAttention), in every combination of these
// but with capped scores. All else computes with masks; capped scores and long rows a part of the
// tokens at a time, so that memory grows with the tokens, not with their square.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace longhaul::worker {

// How a layer scores: query q and key k give q k / sqrt(channels), with changes.
struct Scoring {
  double scale = 0;    // instead of 1 / sqrt(channels of a head); 0: that
  double cap = 0;      // a score s becomes cap * tanh(s / cap); 0: it stays
  int64_t window = 0;  // a token sees at most so many tokens, itself included; 0: all earlier ones
};

// Which tokens may see which: those of its own document up to itself. The same for all blocks of a
// pass; what the kernels need of it is made once. Does not outlive a CUDA graph's recording.
class Sight {
 public:
  // Tokens [first, first + tokens) of each row see tokens [0, first + tokens).
  // `documents`: the document of each token, (rows, at least first + tokens) int64, on the device;
  // documents are consecutive, with different numbers in a row. Undefined: a row is one document.
  // `most_documents`: no fewer than all rows have together.
  Sight(int64_t first, int64_t tokens, const at::Tensor& documents = {},
        int64_t most_documents = 0);
  Sight() = default;

  // The position of each token in its document, (rows, tokens) int64. Undefined if a row is one
  // document.
  at::Tensor Positions() const;

  // Returns what the values are mixed to, (rows, heads, tokens, channels). `queries`: (rows, heads,
  // tokens, channels); `keys` and `values`: (rows, heads of keys, first + tokens, channels). The
  // heads of keys must divide the heads.
  at::Tensor Attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    const Scoring& scoring) const;

 private:
  // All documents' tokens in a row, as FlashAttention wants it: where each document begins, in the
  // queries and in the keys, and where the last one ends; (most_documents + 1) int32.
  struct Lengths {
    at::Tensor queries, keys;
  };
  const Lengths& LengthsOfDocuments() const;
  at::Tensor Fused(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                   const Scoring& scoring) const;
  // What is added to the scores of some queries: 0, or -infinity for keys that they do not see;
  // (rows or 1, 1, queries, keys), shaped and typed for `queries` and `keys`. `begin`: the first
  // query; `first_key`: the first key.
  const at::Tensor& MaskOf(int64_t window, int64_t begin, int64_t first_key,
                           const at::Tensor& queries, const at::Tensor& keys) const;
  at::Tensor Masked(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    const Scoring& scoring) const;

  int64_t first_ = 0, tokens_ = 0, most_documents_ = 0;
  at::Tensor documents_;  // (rows, first + tokens)
  at::Tensor starts_;     // of the document of each token, in its row; as documents_
  mutable std::optional<Lengths> lengths_;
  mutable std::map<std::pair<int64_t, int64_t>, at::Tensor> masks_;  // by window and first query
};

}  // namespace longhaul::worker
