#include "run/published/config_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run/model/family.h"

namespace longhaul::published {

namespace {

using Json = nlohmann::json;

constexpr char kOriginal[] = "original_max_position_embeddings";
constexpr char kShare[] = "partial_rotary_factor";

// One object with the keys of a scaling, called `name` in messages.
class RopeReader {
 public:
  RopeReader(ConfigKeys& keys, const Json& rope, std::string name)
      : keys_(keys), rope_(rope), name_(std::move(name)) {}

  // Null: the key is absent or null. It counts as read in any case.
  const Json* Find(const char* key) {
    seen_.insert(key);
    const auto it = rope_.find(key);
    return it == rope_.end() || it->is_null() ? nullptr : &*it;
  }
  double Real(const char* key, std::optional<double> absent) {
    return keys_.RealOf(Path(key), Find(key), absent);
  }
  // As Real, but 0 also counts as absent.
  double RealNotZero(const char* key, std::optional<double> absent) {
    const Json* const value = Find(key);
    return keys_.RealOf(Path(key), value != nullptr && *value == 0 ? nullptr : value, absent);
  }
  uint32_t Whole(const char* key, uint32_t most, uint32_t absent) {
    return keys_.WholeOf(Path(key), Find(key), most, absent);
  }
  bool Flag(const char* key, bool absent) {
    const Json* const value = Find(key);
    if (value == nullptr || value->is_boolean())
      return value == nullptr ? absent : value->get<bool>();
    Fail(key, fmt::format("expected true or false, got {}", TextOf(*value)));
    return absent;
  }
  std::vector<double> Reals(const char* key) {
    const Json* const list = Find(key);
    std::vector<double> values;
    if (list == nullptr || !list->is_array() || list->size() > model::kMostHidden) {
      Fail(key, fmt::format("expected a list of numbers, got {}",
                            list == nullptr ? "none" : TextOf(*list)));
      return values;
    }
    for (const Json& one : *list) values.push_back(keys_.RealOf(Path(key), &one, {}));
    return values;
  }
  // The type in a key called rope_type, or in older files type.
  std::string Type() {
    const Json* type = Find("rope_type");
    const Json* const older = Find("type");
    if (type == nullptr) type = older;
    if (type == nullptr) return "default";
    return type->is_string() ? type->get<std::string>() : TextOf(*type);
  }
  void Fail(std::string_view key, const std::string& problem) { keys_.Fail(Path(key), problem); }
  void FailWhole(const std::string& problem) { keys_.Fail(name_, problem); }
  void RefuseOthers() {
    for (const auto& [key, value] : rope_.items()) {
      if (!seen_.contains(key) && !value.is_null()) Fail(key, "longhaul does not know this key");
    }
  }

 private:
  std::string Path(std::string_view key) const { return fmt::format("{}.{}", name_, key); }

  ConfigKeys& keys_;
  const Json& rope_;
  const std::string name_;
  std::set<std::string, std::less<>> seen_;
};

// YaRN's factor of cosines and sines, where the file says it; 0: the usual one.
double YarnAttentionFactor(RopeReader& rope, double factor) {
  const double said = rope.RealNotZero("attention_factor", 0);
  const double above = rope.RealNotZero("mscale", 0), below = rope.RealNotZero("mscale_all_dim", 0);
  if (said > 0 || above == 0 || below == 0) return said;
  const auto grown = [factor](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  return grown(above) / grown(below);
}

// `original`: what the config.json has at its top level; 0: nothing.
void ReadScaling(RopeReader& rope, const ModelType& like, uint32_t original, ModelSpec* model) {
  std::string type = rope.Type();
  // Older Phi-3 called it so.
  if (like.stacked_matrices && (type == "su" || type == "yarn")) type = "longrope";
  const auto read_original = [&] {
    const uint32_t own = rope.Whole(kOriginal, model::kMostContext, model->context);
    model->rope_original_context = original > 0 ? original : own;
  };
  const auto read_factor = [&] {
    model->rope_factor =
        rope.Real("factor", static_cast<double>(model->context) / model->rope_original_context);
  };
  if (type == "default") {
    // No scaling.
  } else if (type == "linear") {
    model->rope_scaling = RopeScaling::kLinear;
    model->rope_factor = rope.Real("factor", {});
  } else if (type == "llama3") {
    model->rope_scaling = RopeScaling::kLlama3;
    model->rope_factor = rope.Real("factor", {});
    model->rope_low_frequency = rope.Real("low_freq_factor", {});
    model->rope_high_frequency = rope.Real("high_freq_factor", {});
    read_original();
  } else if (type == "yarn") {
    model->rope_scaling = RopeScaling::kYarn;
    read_original();
    read_factor();
    model->rope_beta_fast = rope.RealNotZero("beta_fast", 32);
    model->rope_beta_slow = rope.RealNotZero("beta_slow", 1);
    model->rope_whole_pairs = rope.Flag("truncate", true);
    model->rope_attention_factor = YarnAttentionFactor(rope, model->rope_factor);
  } else if (type == "dynamic") {
    model->rope_scaling = RopeScaling::kDynamic;
    model->rope_factor = rope.Real("factor", {});
    // transformers stretches beyond max_position_embeddings, whatever this key says.
    rope.Find(kOriginal);
    model->rope_original_context = model->context;
  } else if (type == "longrope") {
    model->rope_scaling = RopeScaling::kLongrope;
    read_original();
    read_factor();
    model->rope_short_factors = rope.Reals("short_factor");
    model->rope_long_factors = rope.Reals("long_factor");
    model->rope_attention_factor = rope.RealNotZero("attention_factor", 0);
  } else {
    rope.FailWhole(
        fmt::format("got the type \"{}\", and longhaul computes only default, linear, "
                    "llama3, yarn, dynamic and longrope",
                    type));
    return;
  }
  rope.RefuseOthers();
}

void ReadShare(ConfigKeys& keys, const std::string& path, const Json* share, const ModelType& like,
               ModelSpec* model) {
  if (share == nullptr || *share == 1.0) return;
  const double value = keys.RealOf(path, share, 1);
  if (!like.stacked_matrices || value > 1) {
    keys.Fail(path, fmt::format("got {}, and longhaul turns all channels of a head in models of "
                                "this type, as transformers does",
                                TextOf(*share)));
    return;
  }
  model->rotary_channels = static_cast<uint32_t>(model->HeadChannels() * value);
}

// Gemma 3: an object for the layers without a window and one for those with it.
void ReadRopeOfBoth(ConfigKeys& keys, const Json& both, const ModelType& like, ModelSpec* model) {
  for (const auto& [kind, value] : both.items()) {
    const std::string name = fmt::format("rope_parameters.{}", kind);
    const bool windowed = kind == "sliding_attention";
    if (!value.is_object() || (!windowed && kind != "full_attention")) {
      keys.Fail(name, fmt::format("expected objects called full_attention and sliding_attention, "
                                  "got {}",
                                  TextOf(value)));
      continue;
    }
    RopeReader rope(keys, value, name);
    if (windowed) {
      model->rope_theta_windowed = rope.Real("rope_theta", like.rope_theta_windowed);
      if (const std::string type = rope.Type(); type != "default") {
        rope.FailWhole(
            fmt::format("got the type \"{}\", and longhaul stretches embeddings only in "
                        "layers without a window",
                        type));
      }
      rope.RefuseOthers();
      continue;
    }
    model->rope_theta = rope.Real("rope_theta", like.rope_theta);
    ReadScaling(rope, like, 0, model);
  }
}

}  // namespace

void ReadRope(ConfigKeys& keys, const ModelType& like, ModelSpec* model) {
  model->rope_theta = keys.Real("rope_theta", like.rope_theta);
  if (like.rope_theta_windowed > 0) {
    model->rope_theta_windowed = keys.Real("rope_local_base_freq", like.rope_theta_windowed);
  }
  const uint32_t original = keys.Find(kOriginal) == nullptr
                                ? (like.stacked_matrices ? like.context : 0)
                                : keys.Whole(kOriginal, model::kMostContext, std::nullopt);
  ReadShare(keys, kShare, keys.Find(kShare), like, model);
  const Json* rope = keys.Find("rope_parameters");
  std::string name = "rope_parameters";
  const bool of_both = like.rope_theta_windowed > 0 && rope != nullptr && rope->is_object() &&
                       (rope->contains("full_attention") || rope->contains("sliding_attention"));
  if (of_both) ReadRopeOfBoth(keys, *rope, like, model);
  if (const Json* older = keys.Find("rope_scaling"); older != nullptr && !older->empty()) {
    rope = older;
    name = "rope_scaling";
  } else if (of_both) {
    return;
  }
  if (rope == nullptr) return;
  if (!rope->is_object()) {
    keys.Fail(name, fmt::format("expected an object, got {}", TextOf(*rope)));
    return;
  }
  RopeReader reader(keys, *rope, name);
  model->rope_theta = reader.Real("rope_theta", model->rope_theta);
  ReadShare(keys, fmt::format("{}.{}", name, kShare), reader.Find(kShare), like, model);
  ReadScaling(reader, like, original, model);
}

namespace {

// A share of which ReadShare makes model.rotary_channels, whatever rounding does.
double ShareOfChannels(const ModelSpec& model) {
  double share = static_cast<double>(model.rotary_channels) / model.HeadChannels();
  while (model.HeadChannels() * share < model.rotary_channels) share = std::nextafter(share, 1.0);
  return share;
}

}  // namespace

void WriteRope(const ModelSpec& model, const ModelType& like, nlohmann::ordered_json* json) {
  nlohmann::ordered_json& out = *json;
  // Readers before transformers 5 look for these keys, later ones take them, too.
  out["rope_theta"] = model.rope_theta;
  if (model.rope_theta_windowed > 0) out["rope_local_base_freq"] = model.rope_theta_windowed;
  if (model.rotary_channels > 0) out[kShare] = ShareOfChannels(model);
  if (model.rope_scaling == RopeScaling::kNone) return;
  nlohmann::ordered_json& scaling = out["rope_scaling"];
  scaling = {{"rope_type", ToString(model.rope_scaling)}, {"factor", model.rope_factor}};
  switch (model.rope_scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kLinear:
      return;
    case RopeScaling::kDynamic:
      out["max_position_embeddings"] = model.rope_original_context;
      return;
    case RopeScaling::kLlama3:
      scaling["low_freq_factor"] = model.rope_low_frequency;
      scaling["high_freq_factor"] = model.rope_high_frequency;
      break;
    case RopeScaling::kYarn:
      scaling["beta_fast"] = model.rope_beta_fast;
      scaling["beta_slow"] = model.rope_beta_slow;
      if (!model.rope_whole_pairs) scaling["truncate"] = false;
      break;
    case RopeScaling::kLongrope:
      scaling["short_factor"] = model.rope_short_factors;
      scaling["long_factor"] = model.rope_long_factors;
      break;
  }
  if (model.rope_attention_factor > 0) scaling["attention_factor"] = model.rope_attention_factor;
  // transformers lets the key at the top level win where there is one, as in every Phi-3.
  scaling[kOriginal] = model.rope_original_context;
  if (like.stacked_matrices) out[kOriginal] = model.rope_original_context;
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
