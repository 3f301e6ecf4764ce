#include "codec/rounding.h"

namespace longhaul::codec {

std::string_view ToString(Rounding rounding) {
  return rounding == Rounding::kNearest ? "nearest" : "stochastic";
}

}  // namespace longhaul::codec
