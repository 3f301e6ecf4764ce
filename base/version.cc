#include "base/version.h"

namespace longhaul {

std::string_view Version() {
  return LONGHAUL_VERSION;
}

}  // namespace longhaul
