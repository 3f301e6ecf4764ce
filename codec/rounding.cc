#include "codec/rounding.h"

namespace longhaul::codec {

std::string_view ToString(Rounding rounding) {
  return rounding == Rounding::kNearest ? "nearest" : "stochastic";
}

bool ParseRounding(std::string_view text, Rounding* rounding) {
  if (text != "nearest" && text != "stochastic") return false;
  *rounding = text == "nearest" ? Rounding::kNearest : Rounding::kStochastic;
  return true;
}

}  // namespace longhaul::codec
