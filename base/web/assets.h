// Files of the source tree that are compiled into a program (by lh_assets of
// cmake/LonghaulTargets.cmake). Names and texts live as long as the program.
#pragma once

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
