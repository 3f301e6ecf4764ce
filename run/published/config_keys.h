// Reads keys of a config.json and remembers which were read, so that RefuseOthers can refuse the
// rest. Collects all problems; ToStatus returns them.
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

// Returns a value's text for messages.
std::string TextOf(const nlohmann::json& value);

class ConfigKeys {
 public:
  using Json = nlohmann::json;
  // Both arguments must outlive this object. `json` must be a JSON object. Every problem begins
  // with `file_name`.
  ConfigKeys(const Json& json, std::string_view file_name) : json_(json), file_(file_name) {}

  // Adds a problem of `key`.
  void Fail(std::string_view key, const std::string& problem);
  // Returns the key's value, which points into `json`; null if the key is absent or its value is
  // null. In every case the key counts as read.
  const Json* Find(const std::string& key);
  // Returns true if the key has the value null. Hugging Face's library transformers may treat null
  // differently from an absent key.
  bool IsNull(const std::string& key) const;

  // Whole (1 to `most`), Real (above 0) and Flag read a key's value. WholeOf and RealOf check a
  // `value` that the caller found; nullptr: the key is absent or null. `absent` is returned if the
  // key is absent or null; nullopt: the key is required. A required key that is missing, or a wrong
  // value, adds a problem; the call then returns a value that is safe to compute with.
  uint32_t Whole(const std::string& key, uint32_t most, std::optional<uint32_t> absent) {
    return WholeOf(key, Find(key), most, absent);
  }
  uint32_t WholeOf(const std::string& key, const Json* value, uint32_t most,
                   std::optional<uint32_t> absent);
  double Real(const std::string& key, double absent) { return RealOf(key, Find(key), absent); }
  double RealOf(const std::string& key, const Json* value, std::optional<double> absent);
  bool Flag(const std::string& key, bool absent);
  // Adds a problem unless the key is absent or null, or has one of the `allowed` values: those for
  // which longhaul computes the same as the published model.
  void Require(const std::string& key, const std::vector<Json>& allowed);

  // Adds a problem for each key that was not read, unless it is null or known to have no effect.
  void RefuseOthers();
  // Returns OK if there is no problem, else kInvalidArgument with all problems, one per line.
  Status ToStatus() const;

 private:
  const Json& json_;
  const std::string_view file_;
  std::set<std::string, std::less<>> seen_;
  std::string problems_;
};

}  // namespace longhaul::published
