// Llama's kin: models that differ from it by a few keys each.
#pragma once

#include <string_view>

#include "run/model/model_spec.h"

namespace longhaul::testing {

// Makes a model of family llama one of its kin: "olmo2", "phi3", "gemma2", "gemma3", or "window",
// Llama with a sliding window in every layer. "": it stays. Windows are a quarter of the context.
inline void MakeKin(std::string_view kin, ModelSpec* model) {
  if (kin == "olmo2") {
    model->qk_norm = model->qk_norm_whole = true;
    model->norms = Norms::kPost;
  } else if (kin == "phi3") {
    model->stacked_matrices = true;
    model->qkv_bias = false;
    model->rotary_channels = model->HeadChannels() / 2;
  } else if (kin == "window") {
    model->window = model->context / 4;
  } else if (kin.starts_with("gemma")) {
    model->norms = Norms::kBoth;
    model->norms_from_one = model->scale_embedding = true;
    model->activation = Activation::kGelu;
    model->score_channels = 2 * model->HeadChannels();
    model->window = model->context / 4;
    model->full_every = 2;
    if (kin == "gemma2") {
      model->attention_cap = 5;
      model->logit_cap = 3;
    } else {
      model->qk_norm = true;
      model->rope_theta_windowed = 100;
    }
  }
}

}  // namespace longhaul::testing
