// Reads keys of a config.json and remembers which were read, so that all others can be refused.
// Collects problems, a line each, for ToStatus.
//
// Internal to run/published. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::published {

// A value's text, for messages.
std::string TextOf(const nlohmann::json& value);

class ConfigKeys {
 public:
  using Json = nlohmann::json;
  // Both arguments outlive this object. `json` must be an object.
  ConfigKeys(const Json& json, std::string_view file_name) : json_(json), file_(file_name) {}

  void Fail(std::string_view key, const std::string& problem);
  // Null if the key is absent or null.
  const Json* Find(const std::string& key);
  // True if the key is null, which transformers may treat differently from an absent key.
  bool IsNull(const std::string& key) const;

  // Whole, WholeOf, Real, RealOf and Flag read a value. `absent`: the value if the key is missing;
  // nullopt: it is required. They report a missing or wrong value as a problem, and then return
  // some valid value.
  uint32_t Whole(const std::string& key, uint32_t most, std::optional<uint32_t> absent) {
    return WholeOf(key, Find(key), most, absent);
  }
  uint32_t WholeOf(const std::string& key, const Json* value, uint32_t most,
                   std::optional<uint32_t> absent);
  double Real(const std::string& key, double absent) { return RealOf(key, Find(key), absent); }
  double RealOf(const std::string& key, const Json* value, std::optional<double> absent);
  bool Flag(const std::string& key, bool absent);
  // Reports a problem unless the key is absent or has one of the `allowed` values. With any other
  // value the model computes differently from longhaul.
  void Require(const std::string& key, const std::vector<Json>& allowed);

  // Refuses keys that were not read, except those known to have no effect.
  void RefuseOthers();
  Status ToStatus() const;

 private:
  const Json& json_;
  const std::string_view file_;
  std::set<std::string, std::less<>> seen_;
  std::string problems_;
};

}  // namespace longhaul::published
