// Guards against impossible numbers in messages of workers.
#pragma once

#include <cmath>

namespace longhaul::coordinator {

// Returns a positive, finite number as it is, and 0 for all others.
inline double Sane(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

}  // namespace longhaul::coordinator
