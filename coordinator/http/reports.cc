#include "coordinator/http/reports.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator {
namespace {

constexpr char kReport[] = "report.html";
constexpr size_t kMostReportBytes = 64 << 20;

// Names of folders, and when their report was written.
StatusOr<std::map<std::string, int64_t>> List(const std::string& folder) {
  std::map<std::string, int64_t> reports;
  if (folder.empty()) return reports;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) {
    return Unavailable("reports in {}: {}", folder, error.message());
  }
  for (const std::filesystem::directory_iterator end; entries != end && !error;
       entries.increment(error)) {
    std::error_code problem;
    const std::filesystem::path report = entries->path() / kReport;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(report, problem))) {
      continue;  // no sweep's folder
    }
    const auto written = std::filesystem::last_write_time(report, problem);
    if (problem) continue;
    const auto since = std::chrono::file_clock::to_sys(written).time_since_epoch();
    reports[entries->path().filename()] =
        std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  }
  if (error) {
    return Unavailable("reports in {}: {}", folder, error.message());
  }
  return reports;
}

// Only a file's own bytes: a link may lead out of the folder, and a pipe would hold the thread.
StatusOr<std::string> ReadRegularFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return FromErrno(fmt::format("cannot stat {}", path), errno);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("expected {} to be a file", path);
  }
  if (info.st_size > static_cast<off_t>(kMostReportBytes)) {
    return ResourceExhausted("{} has {} bytes; the dashboard shows reports of at most {}", path,
                             info.st_size, kMostReportBytes);
  }
  std::string contents(static_cast<size_t>(info.st_size), '\0');
  size_t got = 0;
  while (got < contents.size()) {
    const ssize_t n = ::read(fd.get(), contents.data() + got, contents.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(fmt::format("cannot read {}", path), errno);
    if (n == 0) break;  // it was cut short meanwhile
    got += static_cast<size_t>(n);
  }
  contents.resize(got);
  return contents;
}

}  // namespace

StatusOr<std::string> ReportsJson(const std::string& folder,
                                  const std::function<std::string(std::string_view name)>& ticket) {
  using nlohmann::ordered_json;
  LH_ASSIGN_OR_RETURN(const auto reports, List(folder));
  ordered_json rows = ordered_json::array();
  for (const auto& [name, modified] : reports) {
    rows.push_back({{"name", name}, {"modified_unix_ms", modified}, {"ticket", ticket(name)}});
  }
  return ordered_json{{"reports", std::move(rows)}}.dump(-1, ' ', false,
                                                         ordered_json::error_handler_t::replace);
}

StatusOr<std::string> ReadReport(const std::string& folder, std::string_view name) {
  LH_ASSIGN_OR_RETURN(const auto reports, List(folder));
  // A name that is listed cannot lead out of the folder.
  if (!reports.contains(std::string(name))) {
    return NotFound("there is no report '{}'", name);
  }
  return ReadRegularFile(folder + "/" + std::string(name) + "/" + kReport);
}

}  // namespace longhaul::coordinator
