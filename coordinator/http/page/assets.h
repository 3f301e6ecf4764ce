// The files of the dashboard's page (HTML, styles, scripts), compiled into the program. The HTTP
// server sends them to browsers. Constant; thread-safe.
#pragma once

#include "base/web/assets.h"

namespace longhaul::coordinator {

std::span<const Asset> PageAssets();

}  // namespace longhaul::coordinator
