// A model of each family that a CPU trains in no time.
#pragma once

#include "run/file/run_spec.h"

namespace longhaul::testing {

inline ModelSpec SmallModelOf(ModelFamily family) {
  ModelSpec model;
  model.family = family;
  if (family == ModelFamily::kLlama) {
    model.kv_heads = 2;
    model.intermediate = 160;
    model.qkv_bias = true;
  }
  if (family == ModelFamily::kMoe) {
    model.kv_heads = 2;
    model.qkv_bias = true;
    model.experts = 6;
    model.experts_per_token = 2;
    model.expert_intermediate = 48;
    model.shared_intermediate = 32;
    model.balance_loss = 0.02;
  }
  model.layers = 4;
  model.hidden = 64;
  model.heads = 4;
  model.context = 64;
  return model;
}

}  // namespace longhaul::testing
