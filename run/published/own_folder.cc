#include "run/published/own_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "run/published/config_json.h"

namespace longhaul::published {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr std::string_view kOwnFormat = "longhaul model";
constexpr int kOwnVersion = 1;
constexpr uint32_t kMostRanks = 1024;

bool HasOnly(const Ordered& json, const std::set<std::string_view>& keys) {
  for (const auto& [key, value] : json.items()) {
    if (!keys.contains(key)) return false;
  }
  return json.size() == keys.size();
}

}  // namespace

StatusOr<std::optional<OwnFile>> ParseOwnFile(std::string_view text, std::string_view file_name) {
  const auto json = ParseJson<Ordered>(text);
  if (!json.is_object() || !json.contains("format") || json["format"] != kOwnFormat) {
    return std::optional<OwnFile>();
  }
  if (json.value("version", Ordered()) != kOwnVersion) {
    return absl::UnimplementedError(
        fmt::format("{}: expected version {}, got {}; another version of longhaul wrote it",
                    file_name, kOwnVersion, json.value("version", Ordered()).dump()));
  }
  const auto refuse = [&](std::string_view expected) {
    return InvalidArgument("{}: expected {}", file_name, expected);
  };
  if (!HasOnly(json, {"format", "version", "group", "config"}) || !json["config"].is_object() ||
      !json["group"].is_object() || !HasOnly(json["group"], {"tensor", "p"})) {
    return refuse("format, version, group with tensor and p, and config, an object");
  }
  const Ordered &tensor = json["group"]["tensor"], &p = json["group"]["p"];
  if (!tensor.is_number_unsigned() || tensor < 2 || tensor > kMostRanks) {
    return refuse("a group.tensor from 2 to 1024");
  }
  if (!p.is_number() || p < 0 || p >= 1) return refuse("a group.p from 0, below 1");
  return OwnFile{.ranks = {.count = tensor.get<uint32_t>(), .shared_channels = p.get<double>()},
                 .config_json = json["config"].dump(2) + "\n"};
}

std::string WriteOwnFile(const OwnFile& file) {
  const Ordered json = {
      {"format", kOwnFormat},
      {"version", kOwnVersion},
      {"group", {{"tensor", file.ranks.count}, {"p", file.ranks.shared_channels}}},
      {"config", ParseJson<Ordered>(file.config_json)}};
  return json.dump(2) + "\n";
}

StatusOr<RanksOfModel> RanksIn(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const std::optional<OwnFile> own, ParseOwnFile(text, kOwnFile));
  return own ? own->ranks : RanksOfModel();
}

std::string ConfigWithin(std::string_view text) {
  auto own = ParseOwnFile(text, kOwnFile);
  return own.ok() && *own ? std::move((*own)->config_json) : std::string(text);
}

}  // namespace longhaul::published
