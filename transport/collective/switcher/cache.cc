#include "transport/collective/switcher/cache.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/hash.h"

namespace longhaul::collective::switcher {
namespace {

using Json = nlohmann::json;
constexpr size_t kDigits = 16;
constexpr size_t kMostProbes = 64, kMostPoints = 64;
// Beyond these a time or a size was never measured, and sums over them (FitOf) are not finite.
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e6;
constexpr uint64_t kMostProbedBytes = uint64_t{1} << 50;

Status Damaged(std::string_view what) {
  return InvalidArgument("expected {}", what);
}

// Numbers of all communicators, finite; `least` is the least of them.
StatusOr<std::vector<double>> Numbers(const Json& json, size_t count, double least) {
  if (!json.is_array() || json.size() != count) return Damaged("a number for each communicator");
  std::vector<double> numbers;
  for (const Json& number : json) {
    if (!number.is_number()) return Damaged("numbers");
    numbers.push_back(number.get<double>());
    if (!std::isfinite(numbers.back()) || numbers.back() < least)
      return Damaged("positive numbers");
  }
  return numbers;
}

const Json& Field(const Json& json, const char* name) {
  static const Json kNone;
  if (!json.is_object()) return kNone;
  const auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}

StatusOr<Probe> ParseProbe(const Json& json, size_t communicators) {
  Probe probe;
  const Json& op = Field(json, "op");
  const Json& dtype = Field(json, "dtype");
  if (!op.is_number_unsigned() || op.get<uint64_t>() > static_cast<uint64_t>(Op::kAllToAll) ||
      !dtype.is_number_unsigned() || dtype.get<uint64_t>() > static_cast<uint64_t>(Dtype::kBf16)) {
    return Damaged("an operation and a dtype");
  }
  probe.op = static_cast<Op>(op.get<uint64_t>());
  probe.dtype = static_cast<Dtype>(dtype.get<uint64_t>());
  LH_ASSIGN_OR_RETURN(probe.ratios, Numbers(Field(json, "ratios"), communicators, 1e-3));
  const Json& points = Field(json, "points");
  if (!points.is_array() || points.empty() || points.size() > kMostPoints) {
    return Damaged("points");
  }
  for (const Json& point : points) {
    const Json& bytes = Field(point, "bytes");
    if (!bytes.is_number_unsigned()) return Damaged("bytes");
    Point parsed{.bytes = bytes.get<uint64_t>()};
    if (parsed.bytes == 0 || parsed.bytes > kMostProbedBytes) return Damaged("1 byte to 1 PiB");
    LH_ASSIGN_OR_RETURN(parsed.seconds, Numbers(Field(point, "seconds"), communicators, 0));
    for (const double seconds : parsed.seconds) {  // 0: not measured
      if (seconds != 0 && (seconds < kLeastSeconds || seconds > kMostSeconds)) {
        return Damaged("times between a nanosecond and a million seconds");
      }
    }
    if (!(parsed.seconds[0] > 0)) return Damaged("a time of the native communicator");
    if (!probe.points.empty() && parsed.bytes <= probe.points.back().bytes) {
      return Damaged("ascending sizes");
    }
    probe.points.push_back(std::move(parsed));
  }
  return probe;
}

}  // namespace

std::string CachePath(const std::string& folder, std::string_view key) {
  return fmt::format("{}/collectives-{}.json", folder, Sha256Hex(key).substr(0, kDigits));
}

std::string FormatCache(std::string_view key, std::span<const Probe> probes) {
  Json list = Json::array();
  for (const Probe& probe : probes) {
    Json points = Json::array();
    for (const Point& point : probe.points) {
      points.push_back({{"bytes", point.bytes}, {"seconds", point.seconds}});
    }
    list.push_back({{"op", static_cast<uint32_t>(probe.op)},
                    {"dtype", static_cast<uint32_t>(probe.dtype)},
                    {"ratios", probe.ratios},
                    {"points", points}});
  }
  return Json{{"format", kCacheFormat}, {"key", key}, {"probes", list}}.dump(
             1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

StatusOr<std::vector<Probe>> ParseCache(std::string_view text, std::string_view key,
                                        size_t communicators) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Damaged("JSON");
  if (Field(json, "format") != kCacheFormat) {
    return Damaged(fmt::format("format {}", kCacheFormat));
  }
  if (Field(json, "key") != key) return Damaged("the key of this machine and these options");
  const Json& list = Field(json, "probes");
  if (!list.is_array() || list.size() > kMostProbes) return Damaged("probes");
  std::vector<Probe> probes;
  for (const Json& probe : list) {
    LH_ASSIGN_OR_RETURN(Probe parsed, ParseProbe(probe, communicators));
    probes.push_back(std::move(parsed));
  }
  return probes;
}

}  // namespace longhaul::collective::switcher
