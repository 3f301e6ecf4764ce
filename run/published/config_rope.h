// Reads the keys of a config.json that are about rotary position embeddings.
//
// Internal to run/published. Threads: as of ConfigKeys. A wrong key becomes a problem of `keys`.
#pragma once

#include <cstdint>

#include "run/model/model_spec.h"
#include "run/published/config_keys.h"

namespace longhaul::published {

// Sets rope_theta and the rope_ fields of `model`, whose context must be set. `usual_theta`: the
// base if config.json has none. transformers 5 writes `rope_parameters`, and older versions wrote
// `rope_theta` and `rope_scaling`. If a file has both, transformers reads `rope_scaling`.
void ReadRope(ConfigKeys& keys, double usual_theta, ModelSpec* model);

// Returns ModelSpec::nope_every of a model with this number of layers. `no_rope_layers` has a 0 for
// each layer without rotary embeddings. If it is absent, every `no_rope_layer_interval`-th layer is
// without them. `usual`: the interval if that key is absent, too.
uint32_t ReadLayersWithoutRope(ConfigKeys& keys, uint32_t usual, uint32_t layers);

}  // namespace longhaul::published
