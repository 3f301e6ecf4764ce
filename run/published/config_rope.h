// Rotary embeddings in a config.json.
//
// Internal to run/published. Threads: one at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "run/model/model_spec.h"
#include "run/published/config_keys.h"
#include "run/published/config_types.h"

namespace longhaul::published {

// Reads base, scaling and the number of channels that are turned into *model, whose context and
// heads must be set. With a scaling or a theta that longhaul does not know, reports a problem to
// `keys`.
void ReadRope(ConfigKeys& keys, const ModelType& like, ModelSpec* model);

// Writes the keys from which ReadRope reads the embeddings of `model`.
void WriteRope(const ModelSpec& model, const ModelType& like, nlohmann::ordered_json* json);

// Returns ModelSpec::nope_every of a model whose list `no_rope_layers` says 0 for every layer
// without rotary embeddings, or else has one in every `no_rope_layer_interval` layers (absent:
// `usual`). A list that is not periodic is a problem of `keys`.
uint32_t ReadLayersWithoutRope(ConfigKeys& keys, uint32_t usual, uint32_t layers);

}  // namespace longhaul::published
