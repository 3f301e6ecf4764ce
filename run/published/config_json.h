// The JSON of a config.json, from anybody. Internal to run/published. Pure, thread-safe.
#pragma once

#include <string_view>

namespace longhaul::published {

// Parses `text` as AnyJson, nlohmann::json or ordered_json. Returns a discarded value where it is
// no JSON, or is nested so deeply that writing it would exhaust the stack.
template <class AnyJson>
AnyJson ParseJson(std::string_view text) {
  constexpr int kMostDepth = 32;
  bool deep = false;
  const auto check = [&](int depth, typename AnyJson::parse_event_t, AnyJson&) {
    deep = deep || depth > kMostDepth;
    return !deep;
  };
  AnyJson json = AnyJson::parse(text, check, /*allow_exceptions=*/false);
  return deep ? AnyJson(AnyJson::value_t::discarded) : json;
}

}  // namespace longhaul::published
