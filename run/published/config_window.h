// Sliding windows in a config.json.
//
// Internal to run/published. Pure, thread-safe.
#pragma once

#include <nlohmann/json.hpp>

#include "run/model/model_spec.h"
#include "run/published/config_keys.h"
#include "run/published/config_types.h"

namespace longhaul::published {

// Reads which layers attend to a window alone, into model->window, window_from and full_every.
// model->layers must be set. `json`: the whole config.json.
void ReadWindow(const nlohmann::json& json, ConfigKeys& keys, const ModelType& like,
                ModelSpec* model);

// Writes the keys from which ReadWindow reads the windows of `model`.
void WriteWindow(const ModelSpec& model, const ModelType& like, nlohmann::ordered_json* json);

}  // namespace longhaul::published
