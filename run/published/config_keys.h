// Reads keys and remembers which were asked for, so that the rest can be refused. Problems are
// gathered, a line each; ToStatus has all.
//
// Internal to run/published. One thread at a time.
#ifndef LONGHAUL_RUN_PUBLISHED_CONFIG_KEYS_H_
#define LONGHAUL_RUN_PUBLISHED_CONFIG_KEYS_H_

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

// A value in a message.
std::string TextOf(const nlohmann::json& value);

class ConfigKeys {
 public:
  using Json = nlohmann::json;
  // Both outlive it. `json`: an object.
  ConfigKeys(const Json& json, std::string_view file_name) : json_(json), file_(file_name) {}

  void Fail(std::string_view key, const std::string& problem);
  // Null where it is absent, or says null.
  const Json* Find(const std::string& key);
  // Says null, which transformers may take for another value than that of an absent key.
  bool IsNull(const std::string& key) const;

  // Values that are missing or wrong are reported, and 1.
  uint32_t Whole(const std::string& key, uint32_t most, std::optional<uint32_t> absent) {
    return WholeOf(key, Find(key), most, absent);
  }
  uint32_t WholeOf(const std::string& key, const Json* value, uint32_t most,
                   std::optional<uint32_t> absent);
  double Real(const std::string& key, double absent) { return RealOf(key, Find(key), absent); }
  double RealOf(const std::string& key, const Json* value, std::optional<double> absent);
  bool Flag(const std::string& key, bool absent);
  // The model computes as longhaul does where the key has one of these values, or is absent.
  void Require(const std::string& key, const std::vector<Json>& allowed);

  // Keys that nobody asked for, but for those that are known to change nothing.
  void RefuseOthers();
  Status ToStatus() const;

 private:
  const Json& json_;
  const std::string_view file_;
  std::set<std::string, std::less<>> seen_;
  std::string problems_;
};

}  // namespace longhaul::published

#endif  // LONGHAUL_RUN_PUBLISHED_CONFIG_KEYS_H_
