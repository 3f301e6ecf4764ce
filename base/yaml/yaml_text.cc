#include "base/yaml/yaml_text.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul::config {

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + '"';
}

std::string Exact(absl::Duration duration) {
  struct Unit {
    absl::Duration length;
    std::string_view name;
  };
  for (const Unit& unit : {Unit{absl::Seconds(1), "s"}, Unit{absl::Milliseconds(1), "ms"},
                           Unit{absl::Microseconds(1), "us"}}) {
    if (duration % unit.length == absl::ZeroDuration()) {
      return fmt::format("{}{}", duration / unit.length, unit.name);
    }
  }
  return fmt::format("{}ns", absl::ToInt64Nanoseconds(duration));
}

std::string ExactBytes(uint64_t bytes) {
  constexpr std::pair<int, std::string_view> kUnits[] = {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, name] : kUnits) {
    if (bytes > 0 && bytes % (uint64_t{1} << shift) == 0) {
      return fmt::format("{}{}", bytes >> shift, name);
    }
  }
  return fmt::format("{}", bytes);
}

}  // namespace longhaul::config
