#include "worker/measuring/device_id.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace longhaul::worker {
namespace {

constexpr std::string_view kKey = "GPU UUID:";

// UUIDs of all GPUs in bus order. The folders are named by bus address.
std::vector<std::string> Uuids(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> gpus;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    gpus.push_back(entry.path());
  }
  std::ranges::sort(gpus);
  std::vector<std::string> uuids;
  for (const std::filesystem::path& gpu : gpus) {
    std::ifstream information(gpu / "information");
    std::string& uuid = uuids.emplace_back();
    for (std::string line; std::getline(information, line);) {
      if (line.rfind(kKey, 0) != 0) continue;
      uuid = std::string(absl::StripAsciiWhitespace(line.substr(kKey.size())));
    }
  }
  return uuids;
}

}  // namespace

std::string GpuUuid(uint32_t index, std::string_view visible, const std::string& folder) {
  const std::vector<std::string> uuids = Uuids(folder);
  if (!visible.empty()) {
    const std::vector<std::string> names =
        absl::StrSplit(absl::string_view(visible.data(), visible.size()), ',');
    if (index >= names.size()) return "";
    const std::string name(absl::StripAsciiWhitespace(names[index]));
    const auto named = std::ranges::find_if(
        uuids, [&](const std::string& uuid) { return !name.empty() && uuid.rfind(name, 0) == 0; });
    if (named != uuids.end()) return *named;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (problem != std::errc() || end != name.data() + name.size()) return "";
  }
  return index < uuids.size() ? uuids[index] : "";
}

}  // namespace longhaul::worker
