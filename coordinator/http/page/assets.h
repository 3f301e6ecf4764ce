// The files of the dashboard's page (HTML, styles, scripts), compiled into the program. The HTTP
// server sends them to browsers. Each Asset has a file's name and its text. The data is constant
// and lives until the process ends. Thread-safe.
#pragma once

#include "base/web/assets.h"

namespace longhaul::coordinator {

std::span<const Asset> PageAssets();

}  // namespace longhaul::coordinator
