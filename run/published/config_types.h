// The models of transformers that longhaul computes: names, and what an absent key of a config.json
// means.
//
// Internal to run/published. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "run/model/model_spec.h"

namespace longhaul::published {

// Which layers have a sliding window, where the config.json has one.
enum class Windows : uint8_t {
  kNone,     // no layer: the key `sliding_window` is not read
  kAll,      // all layers, whatever `layer_types` says
  kByFlag,   // with `use_sliding_window`: all
  kByTypes,  // those that `layer_types` names, or else one in so many has none
  kByFirst,  // with `use_sliding_window`: those that `layer_types` names, or else those from
             // `max_window_layers` on
  kNamed,    // with `use_sliding_window`: those that `layer_types` names, which must be there
};

struct ModelType {
  std::string_view name, architecture;
  ModelFamily family = ModelFamily::kLlama;
  // The following ones are those of Llama's kin. Values of absent keys:
  uint32_t kv_heads = 0;       // 0: as many as heads
  uint32_t head_channels = 0;  // 0: hidden / heads
  double rope_theta = 1e4;
  double rope_theta_windowed = 0;
  uint32_t context = 0;
  double norm_epsilon = 1e-6;
  bool tied = false;
  uint32_t window = 0;  // 0: none
  uint32_t nope_every = 0;
  // What the layers are, whatever the keys say.
  bool qkv_bias = false, qk_norm = false, qk_norm_whole = false;
  Norms norms = Norms::kPre;
  bool stacked_matrices = false;
  bool of_gemma = false;  // gelu, norms from one, a scaled embedding, and what these bring along
  Windows windows = Windows::kNone;
  uint32_t full_every = 0;  // Windows::kByTypes
  // Code that published models of this type name in `auto_map`, because they are older than the
  // type in transformers, which computes the same; empty: none.
  std::string_view own_code;
  double attention_cap = 0, logit_cap = 0;  // of_gemma

  bool experts() const { return family == ModelFamily::kMoe; }
};

// Returns null for a name that longhaul does not know.
const ModelType* FindModelType(std::string_view name);
// Why longhaul does not compute a model type that people ask for, as the end of a sentence; "" for
// names that it knows nothing about.
std::string_view WhatIsMissing(std::string_view name);
// All names, as a list in a sentence: "gpt2, llama or mistral".
std::string NamesOfModelTypes();

// Returns transformers' name of what the model is. kFailedPrecondition: it has none.
StatusOr<std::string_view> ModelTypeOf(const ModelSpec& model);

// Sets window_from and full_every, if any such numbers make HasWindow true for exactly the layers
// of `windowed`, which has an entry for each layer; no layer: window, too, becomes 0. Equal lists
// give equal numbers. Returns false if none fit; they are 0 then.
bool FitWindows(const std::vector<bool>& windowed, ModelSpec* model);

// Returns `model` with all fields that change nothing at their initial values, so that models that
// compute the same are equal.
ModelSpec Canonical(ModelSpec model);

}  // namespace longhaul::published
