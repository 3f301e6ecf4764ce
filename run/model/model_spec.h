// A model as the run file describes it. Plain data; any thread may read it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "run/model/model_family.h"

namespace longhaul {

// How rotary embeddings were changed for a longer context than in training.
//   "linear"    all wavelengths are stretched by rope_factor
//   "llama3"    long wavelengths by rope_factor, short ones not at all, with a transition
//   "yarn"      the same with another transition, and sharper attention (rope_attention_factor)
//   "dynamic"   only rows longer than rope_original_context are stretched, by a larger base
//   "longrope"  each wavelength by a factor of its own: rope_short_factors up to
//               rope_original_context, rope_long_factors for longer rows
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kDynamic, kLongrope };

// Where a block has norms: "pre", before attention and before the MLP; "post", behind each of them,
// before their result is added to the residual stream; or "both".
enum class Norms : uint8_t { kPre, kPost, kBoth };

// The function of the MLP's gate. "gelu": with tanh in place of the error function.
enum class Activation : uint8_t { kSilu, kGelu };

// How a mixture's experts are kept equally busy. "loss": the router learns it from an auxiliary
// loss. "bias": biases are added to the scores only for choosing experts; after each step they rise
// for experts that got too few tokens, and fall for experts that got too many.
enum class Balance : uint8_t { kLoss, kBias, kNone };

// How the frozen matrices of blocks are stored with LoRA, in the layouts of bitsandbytes. "nf4": 4
// bits an element, as QLoRA has it. "int8": 8 bits, as LLM.int8() has it. "none": the type of
// products.
enum class QuantizeBase : uint8_t { kNone, kNf4, kInt8 };

std::string_view ToString(ModelFamily family);
constexpr std::string_view ToString(RopeScaling scaling) {
  return WordOf(scaling, {"none", "linear", "llama3", "yarn", "dynamic", "longrope"});
}
constexpr std::string_view ToString(Norms norms) {
  return WordOf(norms, {"pre", "post", "both"});
}
constexpr std::string_view ToString(Activation activation) {
  return WordOf(activation, {"silu", "gelu"});
}
constexpr std::string_view ToString(Balance balance) {
  return WordOf(balance, {"loss", "bias", "none"});
}

constexpr std::string_view ToString(QuantizeBase quantize) {
  return WordOf(quantize, {"none", "nf4", "int8"});
}

// "train.lora": a matrix W of the target modules computes W x + scale B (A x). Only A and B are
// trained; the published model's parameters do not change (lora.h).
struct LoraSpec {
  uint32_t rank = 0;
  double alpha = 0;
  bool rslora = false;  // the scale is alpha / sqrt(rank) instead of alpha / rank
  // Share of the numbers in x that A does not see in training: they are drawn anew for each
  // microbatch, and the others are multiplied by 1 / (1 - dropout). Below 1.
  double dropout = 0;
  QuantizeBase quantize_base = QuantizeBase::kNone;  // of the matrices that could be targets
  // Ends of modules' published names: "q_proj", "mlp.c_proj". Not empty, no duplicates.
  std::vector<std::string> targets;

  double scale() const { return alpha / (rslora ? std::sqrt(rank) : rank); }
  friend bool operator==(const LoraSpec&, const LoraSpec&) = default;
};

// `preset: gpt2-xl` (family.h) fills in keys that the file omits.
struct ModelSpec {
  ModelFamily family = ModelFamily::kGpt;
  uint32_t layers = 0;   // required
  uint32_t hidden = 0;   // required; channels of a boundary tensor
  uint32_t heads = 0;    // required; divides hidden
  uint32_t context = 0;  // required; tokens of a sequence
  bool tied = false;     // embedding and head are one matrix
  // Rows of embedding and head, at least the tokenizer's vocabulary; nullopt = "auto": as many.
  std::optional<uint32_t> vocabulary;
  // The following keys belong to some families only: see Family::keys. "Required" and "omitted"
  // hold for families that have the key.
  uint32_t kv_heads = 0;       // heads of keys and values; divides heads; omitted: heads
  uint32_t head_channels = 0;  // channels of a head; 0: hidden / heads
  uint32_t intermediate = 0;   // required; width of the MLP
  double rope_theta = 1e4;     // base of the rotary embeddings' wavelengths
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 1;
  // The context before the scaling: all kinds but linear.
  uint32_t rope_original_context = 8192;
  // For llama3: wavelengths above rope_original_context / rope_low_frequency are stretched; those
  // below rope_original_context / rope_high_frequency are not.
  double rope_low_frequency = 1, rope_high_frequency = 4;
  // For yarn: pairs of channels that turn more than rope_beta_fast times within
  // rope_original_context are not stretched; those that turn less than rope_beta_slow times are
  // stretched by rope_factor. rope_whole_pairs: the two limits are rounded to whole pairs.
  double rope_beta_fast = 32, rope_beta_slow = 1;
  bool rope_whole_pairs = true;
  // For yarn and longrope: queries and keys are multiplied by it; 0: as the method's paper has it.
  double rope_attention_factor = 0;
  std::vector<double> rope_short_factors, rope_long_factors;  // longrope: of each pair of channels
  uint32_t rotary_channels = 0;    // the first channels of a head are turned; 0: all
  double rope_theta_windowed = 0;  // of layers with a window, without scaling; 0: as other layers
  // Layers without rotary embeddings: of layers 1, 2, ... those whose number is a multiple; 0:
  // none.
  uint32_t nope_every = 0;
  double norm_epsilon = 1e-5;  // of all norms; omitted: 1e-5 in gpt, else 1e-6
  bool qkv_bias = false;       // biases in the projections to queries, keys and values
  bool qk_norm = false;        // queries and keys go through an RMSNorm
  bool qk_norm_whole = false;  // one norm over all heads, instead of one for each head
  Norms norms = Norms::kPre;
  bool norms_from_one = false;  // what norms multiply by is 1 + their weight
  Activation activation = Activation::kSilu;
  bool scale_embedding = false;  // the embedding is multiplied by sqrt(hidden)
  // Caps: a score s becomes cap * tanh(s / cap). Of attention's scores and of logits; 0: no cap.
  double attention_cap = 0, logit_cap = 0;
  uint32_t score_channels = 0;  // scores are divided by its square root; 0: channels of a head
  // A token attends to at most so many tokens, itself included; 0: to all earlier ones. Layers are
  // counted from 0. Those before window_from have no window; of the others, with full_every n > 0,
  // each n-th layer of the model has none.
  uint32_t window = 0, window_from = 0, full_every = 0;
  // Published tensors hold queries, keys and values in one, and the MLP's gate and up in one.
  bool stacked_matrices = false;
  uint32_t experts = 0;              // required; per block
  uint32_t experts_per_token = 0;    // required; the experts with the highest scores
  uint32_t expert_intermediate = 0;  // required; width of each expert's MLP
  uint32_t shared_intermediate = 0;  // width of an MLP that all tokens also go through; 0: none
  bool normalize_router = true;      // the weights of a token's experts sum to 1
  Balance balance = Balance::kLoss;
  double balance_loss = 1e-3;    // Balance::kLoss: weight of the auxiliary loss
  double balance_rate = 1e-3;    // Balance::kBias: step of a bias
  std::optional<LoraSpec> lora;  // nullopt: all parameters are trained

  uint32_t HeadChannels() const { return head_channels > 0 ? head_channels : hidden / heads; }
  uint32_t QueryChannels() const { return HeadChannels() * heads; }
  uint32_t KvChannels() const { return HeadChannels() * kv_heads; }
  // True if layer `index`, counted from 0, has rotary embeddings.
  bool HasRotary(uint32_t index) const { return nope_every == 0 || (index + 1) % nope_every != 0; }
  uint32_t RotaryChannels() const { return rotary_channels > 0 ? rotary_channels : HeadChannels(); }
  // True if layer `index`, counted from 0, attends to a window alone.
  bool HasWindow(uint32_t index) const {
    return window > 0 && index >= window_from && (full_every == 0 || (index + 1) % full_every != 0);
  }
  bool has_experts() const { return family == ModelFamily::kMoe; }
  // True if embedding and head are one trained matrix. Two stages may each hold a copy; they then
  // sum its gradient.
  bool TrainsTiedMatrix() const { return tied && !lora; }
  uint32_t VocabularyOver(uint32_t tokenizer_vocabulary) const {
    return vocabulary.value_or(tokenizer_vocabulary);
  }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

}  // namespace longhaul
