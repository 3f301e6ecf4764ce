// Files of the source tree that are compiled into a program (lh_assets,
// cmake/LonghaulTargets.cmake).
#ifndef LONGHAUL_BASE_WEB_ASSETS_H_
#define LONGHAUL_BASE_WEB_ASSETS_H_

#include <span>
#include <string_view>

namespace longhaul {

struct Asset {
  std::string_view name;  // file name without folder: "uPlot.min.css"
  std::string_view text;
};

// uPlot, which draws curves: its script, its style and its licence (base/web/uplot/README.md).
std::span<const Asset> UplotAssets();

}  // namespace longhaul

#endif  // LONGHAUL_BASE_WEB_ASSETS_H_
