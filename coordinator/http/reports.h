// Lists and reads reports of sweeps in a folder, for the dashboard to link to.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::coordinator {

// Lists the reports in `folder`, which has a folder for each sweep, as `longhaul sweep --out`
// writes it. Returns {"reports": [{"name": ..., "modified_unix_ms": ..., "ticket": ...}]}, sorted
// by name. `ticket`: what opens the report of this name. If `folder` is "", the list is empty.
// kUnavailable: the folder cannot be read.
StatusOr<std::string> ReportsJson(const std::string& folder,
                                  const std::function<std::string(std::string_view name)>& ticket);
// Returns the HTML of one report. Reads only regular files, no symbolic links. kNotFound:
// ReportsJson does not list this name. kResourceExhausted: the report is larger than 64 MiB.
StatusOr<std::string> ReadReport(const std::string& folder, std::string_view name);

}  // namespace longhaul::coordinator
