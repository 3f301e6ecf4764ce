// Reports of sweeps that lie in a folder, to be linked from the dashboard.
#ifndef LONGHAUL_COORDINATOR_HTTP_REPORTS_H_
#define LONGHAUL_COORDINATOR_HTTP_REPORTS_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::coordinator {

// `folder` has a folder for each sweep, as `longhaul sweep --out` writes it. Empty: no reports.
// {"reports": [{"name": ..., "modified_unix_ms": ...}]}, by name. kUnavailable.
StatusOr<std::string> ReportsJson(const std::string& folder);
// The report of one of them: a file, and no link. kNotFound. kResourceExhausted: above 64 MiB.
StatusOr<std::string> ReadReport(const std::string& folder, std::string_view name);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_REPORTS_H_
