// Lists and reads reports of sweeps in a folder, for the dashboard to link to.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::coordinator {

// `folder` has a folder for each sweep, as `longhaul sweep --out` writes it. Empty: no reports.
// Returns {"reports": [{"name": ..., "modified_unix_ms": ...}]}, by name. kUnavailable.
StatusOr<std::string> ReportsJson(const std::string& folder);
// Reads one report: a regular file, not a symbolic link. kNotFound. kResourceExhausted: above 64
// MiB.
StatusOr<std::string> ReadReport(const std::string& folder, std::string_view name);

}  // namespace longhaul::coordinator
