#include "coordinator/http/reports.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.h"

namespace longhaul::coordinator {
namespace {

constexpr char kReport[] = "report.html";

// Names of folders, and when their report was written.
StatusOr<std::map<std::string, int64_t>> List(const std::string& folder) {
  std::map<std::string, int64_t> reports;
  if (folder.empty()) return reports;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) {
    return absl::UnavailableError(fmt::format("reports in {}: {}", folder, error.message()));
  }
  for (const auto& entry : entries) {
    const auto written = std::filesystem::last_write_time(entry.path() / kReport, error);
    if (error) continue;  // no sweep's folder
    const auto since = std::chrono::file_clock::to_sys(written).time_since_epoch();
    reports[entry.path().filename()] =
        std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  }
  return reports;
}

}  // namespace

StatusOr<std::string> ReportsJson(const std::string& folder) {
  using nlohmann::ordered_json;
  LH_ASSIGN_OR_RETURN(const auto reports, List(folder));
  ordered_json rows = ordered_json::array();
  for (const auto& [name, modified] : reports) {
    rows.push_back({{"name", name}, {"modified_unix_ms", modified}});
  }
  return ordered_json{{"reports", std::move(rows)}}.dump(-1, ' ', false,
                                                         ordered_json::error_handler_t::replace);
}

StatusOr<std::string> ReadReport(const std::string& folder, std::string_view name) {
  LH_ASSIGN_OR_RETURN(const auto reports, List(folder));
  // A name that is listed cannot lead out of the folder.
  if (!reports.contains(std::string(name))) {
    return absl::NotFoundError(fmt::format("there is no report '{}'", name));
  }
  return ReadFile(folder + "/" + std::string(name) + "/" + kReport);
}

}  // namespace longhaul::coordinator
