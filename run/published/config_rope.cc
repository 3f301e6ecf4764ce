#include "run/published/config_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "run/model/family.h"

namespace longhaul::published {

using Json = nlohmann::json;

void ReadRope(ConfigKeys& keys, double usual_theta, ModelSpec* model) {
  model->rope_theta = keys.Real("rope_theta", usual_theta);
  const Json* rope = keys.Find("rope_parameters");
  std::string name = "rope_parameters";
  if (const Json* older = keys.Find("rope_scaling"); older != nullptr && !older->empty()) {
    rope = older;
    name = "rope_scaling";
  }
  if (rope == nullptr) return;
  if (!rope->is_object()) {
    keys.Fail(name, fmt::format("expected an object, got {}", TextOf(*rope)));
    return;
  }
  const auto find = [&](const char* key) -> const Json* {
    const auto it = rope->find(key);
    return it == rope->end() || it->is_null() ? nullptr : &*it;
  };
  const auto path = [&](std::string_view key) { return fmt::format("{}.{}", name, key); };
  const auto real = [&](const char* key) { return keys.RealOf(path(key), find(key), {}); };
  const Json* type = find("rope_type");
  if (type == nullptr) type = find("type");
  std::set<std::string> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  model->rope_theta = keys.RealOf(path("rope_theta"), find("rope_theta"), model->rope_theta);
  if (const Json* share = find("partial_rotary_factor"); share != nullptr && *share != 1.0) {
    keys.Fail(path("partial_rotary_factor"),
              fmt::format("got {}, and longhaul turns all channels of a head", TextOf(*share)));
  }
  if (type == nullptr || *type == "default") {
    // No scaling.
  } else if (*type == "linear") {
    model->rope_scaling = RopeScaling::kLinear;
    model->rope_factor = real("factor");
    known.insert("factor");
  } else if (*type == "llama3") {
    model->rope_scaling = RopeScaling::kLlama3;
    model->rope_factor = real("factor");
    model->rope_low_frequency = real("low_freq_factor");
    model->rope_high_frequency = real("high_freq_factor");
    constexpr const char* kOriginal = "original_max_position_embeddings";
    model->rope_original_context =
        keys.WholeOf(path(kOriginal), find(kOriginal), model::kMostContext, model->context);
    known.insert({"factor", "low_freq_factor", "high_freq_factor", kOriginal});
  } else {
    keys.Fail(name, fmt::format("got the type {}, and longhaul computes only default, linear and "
                                "llama3",
                                TextOf(*type)));
    return;
  }
  for (const auto& [key, value] : rope->items()) {
    if (known.contains(key) || value.is_null()) continue;
    keys.Fail(path(key), "longhaul does not know this key");
  }
}

uint32_t ReadLayersWithoutRope(ConfigKeys& keys, uint32_t usual, uint32_t layers) {
  const Json* const list = keys.Find("no_rope_layers");
  const uint32_t every = keys.Whole("no_rope_layer_interval", model::kMostLayers, usual);
  if (list == nullptr) return every;
  const bool fits =
      list->is_array() && list->size() == layers &&
      std::ranges::all_of(*list, [](const Json& one) { return one == 0 || one == 1; });
  if (!fits) {
    keys.Fail("no_rope_layers",
              fmt::format("expected a list of {} numbers 0 or 1, got {}", layers, TextOf(*list)));
    return every;
  }
  const auto first = static_cast<uint32_t>(std::ranges::find(*list, Json(0)) - list->begin());
  const uint32_t found = first == layers ? 0 : first + 1;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const bool expected = found == 0 || (layer + 1) % found != 0;
    if (((*list)[layer] == 1) == expected) continue;
    keys.Fail("no_rope_layers",
              fmt::format("longhaul computes models in which every n-th layer has no rotary "
                          "embeddings; here it is layer {}, and layer {} breaks that",
                          first + 1, layer + 1));
    return every;
  }
  return found;
}

}  // namespace longhaul::published
