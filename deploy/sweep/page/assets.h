// What a report brings along beside uPlot: its style and the script that draws its charts.
#ifndef LONGHAUL_DEPLOY_SWEEP_PAGE_ASSETS_H_
#define LONGHAUL_DEPLOY_SWEEP_PAGE_ASSETS_H_

#include "base/web/assets.h"

namespace longhaul::cli {

std::span<const Asset> ReportAssets();  // report.css, report.js

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_PAGE_ASSETS_H_
