#include "run/published/config_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/model/family.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kMostWindow = 1u << 31;
constexpr char kTypes[] = "layer_types", kFirst[] = "max_window_layers";

// Returns for each layer whether `layer_types` gives it a window; nullopt: the key is absent or
// wrong.
std::optional<std::vector<bool>> ReadTypes(ConfigKeys& keys, uint32_t layers) {
  const Json* const types = keys.Find(kTypes);
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() || types->size() != layers) {
    keys.Fail(kTypes, types->is_array()
                          ? fmt::format("expected a list of {} names, one for each layer, got {}",
                                        layers, types->size())
                          : fmt::format("expected a list, got {}", TextOf(*types)));
    return std::nullopt;
  }
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      keys.Fail(kTypes, fmt::format("got {}, and longhaul computes only full_attention and "
                                    "sliding_attention",
                                    TextOf(type)));
      return std::nullopt;
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

// The first layer with a window, where no list names them: models of Qwen alone.
uint32_t ReadFirst(ConfigKeys& keys) {
  constexpr uint32_t kUsual = 28;
  const Json* const said = keys.Find(kFirst);
  if (said == nullptr) return kUsual;
  if (said->is_number_unsigned()) {
    return static_cast<uint32_t>(std::min<uint64_t>(said->get<uint64_t>(), model::kMostLayers));
  }
  keys.Fail(kFirst, fmt::format("expected a whole number, got {}", TextOf(*said)));
  return kUsual;
}

}  // namespace

void ReadWindow(const Json& json, ConfigKeys& keys, const ModelType& like, ModelSpec* model) {
  const bool by_flag = like.windows == Windows::kByFlag || like.windows == Windows::kByFirst ||
                       like.windows == Windows::kNamed;
  const bool used =
      by_flag ? keys.Flag("use_sliding_window", false) : like.windows != Windows::kNone;
  // Without a window the other keys mean nothing; models of Qwen set the window to 0 then.
  for (const char* const key : {"sliding_window", kFirst, kTypes}) keys.Find(key);
  if (!used) return;
  // An absent key has its usual value, and null says that there is none.
  model->window = json.contains("sliding_window") ? 0 : like.window;
  if (keys.Find("sliding_window") != nullptr) {
    model->window = keys.Whole("sliding_window", kMostWindow, std::nullopt);
  }
  const bool all = like.windows == Windows::kAll || like.windows == Windows::kByFlag;
  if (all || model->window == 0) return;
  const uint32_t first = like.windows == Windows::kByFirst ? ReadFirst(keys) : 0;
  if (like.of_gemma && keys.Find("sliding_window_pattern") != nullptr) {
    model->full_every = keys.Whole("sliding_window_pattern", model::kMostLayers, std::nullopt);
  } else if (like.windows == Windows::kByTypes) {
    model->full_every = like.full_every;
  }
  const bool listed = keys.Find(kTypes) != nullptr;
  const auto windowed = ReadTypes(keys, model->layers);
  if (windowed) {
    if (!FitWindows(*windowed, model)) {
      keys.Fail(kTypes,
                "longhaul computes models in which, from some layer on, every n-th layer or no "
                "layer has full_attention; this list is another");
    }
  } else if (like.windows == Windows::kNamed && !listed) {
    keys.Fail(kTypes,
              "expected a list of the layers' types beside use_sliding_window: true; which layers "
              "have the window without it differs between versions of transformers");
  } else {
    model->window_from = first;
  }
}

void WriteWindow(const ModelSpec& model, const ModelType& like, nlohmann::ordered_json* json) {
  nlohmann::ordered_json& out = *json;
  if (like.windows == Windows::kNone) return;
  out["sliding_window"] = nullptr;
  if (model.window == 0) return;
  out["sliding_window"] = model.window;
  if (like.windows != Windows::kAll && like.windows != Windows::kByTypes) {
    out["use_sliding_window"] = true;
  }
  const bool all = model.window_from == 0 && model.full_every == 0;
  if (like.windows == Windows::kByFirst) out[kFirst] = model.window_from;
  if (like.windows == Windows::kAll || like.windows == Windows::kByFlag) return;
  if (like.windows == Windows::kByTypes && all && like.full_every == 0) return;
  out[kTypes] = nlohmann::ordered_json::array();
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    out[kTypes].push_back(model.HasWindow(layer) ? "sliding_attention" : "full_attention");
  }
}

}  // namespace longhaul::published
